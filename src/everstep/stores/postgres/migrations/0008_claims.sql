-- A claim is two statements: what is due, with what the engine judges of it, and giving what it chose.

-- As due_6, with what is known of each run's lease, for one that has an owner where its newest record is, and the time.
CREATE FUNCTION {schema}.due_8(
    the_time bigint, names text[], hashes text[], apart_from text[], most integer, last_groups text[], full_groups jsonb
) RETURNS TABLE (
    kind integer, run_key bigint, run_id text, since bigint, priority bigint, flow_id text, run_group text,
    epoch bigint, owner text, expires_at bigint, process text, takeovers integer, claimed_sequence bigint,
    newest bigint, at bigint
) LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    the_time := coalesce(the_time, {schema}.now_1());
    RETURN QUERY
        SELECT due.kind, due.run_key, due.run_id, due.since, due.priority, due.flow_id, due.run_group,
               r.epoch, r.owner, r.expires_at, r.process, r.takeovers, r.claimed_sequence,
               CASE WHEN r.owner IS NOT NULL THEN
                   (SELECT max(c.sequence) FROM {schema}.checkpoints AS c WHERE c.run_key = r.run_key) END,
               the_time
        FROM {schema}.due_6(the_time, names, hashes, apart_from, most, last_groups, full_groups) AS due
        JOIN {schema}.runs AS r ON r.run_key = due.run_key;
END $$;

-- Gives leases on runs that are as they were judged, in order, to as many owners. What another worker is about to take
-- is passed over, and so is what one has driven, or taken over to a version that is not named, since it was looked at.
-- Waits of these runs that are due are settled.
CREATE FUNCTION {schema}.claim_8(
    the_time bigint, keys bigint[], epochs bigint[], old_owners text[], deaths integer[], flows text[],
    new_owners text[], the_ttl bigint, the_process text
) RETURNS SETOF {schema}.runs LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    locked bigint[];
    counted integer[];
BEGIN
    the_time := coalesce(the_time, {schema}.now_1());
    SELECT array_agg(found.run_key ORDER BY found.place), array_agg(found.takeovers ORDER BY found.place)
    INTO locked, counted
    FROM (
        SELECT runs.run_key, judged.takeovers, judged.place
        FROM unnest(keys, epochs, old_owners, deaths) WITH ORDINALITY
             AS judged (run_key, epoch, owner, takeovers, place)
        JOIN {schema}.runs ON runs.run_key = judged.run_key
        WHERE runs.epoch = judged.epoch AND runs.owner IS NOT DISTINCT FROM judged.owner
          AND (runs.expires_at IS NULL OR runs.expires_at <= the_time) AND runs.needs_repair IS NULL
          AND runs.status IN ('running', 'halted') AND runs.flow_id || ' ' || runs.flow_hash = ANY (flows)
          AND (runs.status = 'running' OR runs.signal IS NOT NULL OR EXISTS (
                   SELECT FROM {schema}.waits WHERE waits.run_key = runs.run_key AND wake_at <= the_time))
        ORDER BY judged.place LIMIT cardinality(new_owners) FOR NO KEY UPDATE OF runs SKIP LOCKED) AS found;
    IF locked IS NULL THEN
        RETURN;
    END IF;
    PERFORM nextval('{schema}.changes');
    UPDATE {schema}.waits
    SET status = 'settled', settled_at = the_time, settled_by = 'clock',
        wake_at = {schema}.wake_1(runs.status, 'settled', scheduler, due_at)
    FROM {schema}.runs
    WHERE runs.run_key = ANY (locked) AND waits.run_key = runs.run_key AND waits.status = 'open' AND scheduler = ''
      AND due_at <= the_time;
    RETURN QUERY
        UPDATE {schema}.runs
        SET epoch = runs.epoch + 1, owner = given.owner, expires_at = the_time + the_ttl, process = the_process,
            takeovers = given.takeovers, claimed_sequence = coalesce(
                (SELECT max(sequence) FROM {schema}.checkpoints WHERE checkpoints.run_key = runs.run_key), 0)
        FROM unnest(locked, counted, new_owners) AS given (run_key, takeovers, owner)
        WHERE runs.run_key = given.run_key
        RETURNING runs.*;
END $$;
