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
--
-- Every run is looked up by its key, and written where it was found, as are its waits, which no other may change while it
-- is locked: a plan that was made while the tables were small, and is kept, must not read them from end to end.
CREATE FUNCTION {schema}.claim_8(
    the_time bigint, keys bigint[], epochs bigint[], old_owners text[], deaths integer[], flows text[],
    new_owners text[], the_ttl bigint, the_process text
) RETURNS SETOF {schema}.runs LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    locked bigint[];
    places tid[];
    counted integer[];
    due tid[];
BEGIN
    the_time := coalesce(the_time, {schema}.now_1());
    -- A row is locked when it is met, and no more are met than there are owners.
    SELECT array_agg(run_key), array_agg(place), array_agg(takeovers) INTO locked, places, counted
    FROM (
        SELECT run.run_key, run.place, judged.takeovers
        FROM unnest(keys, epochs, old_owners, deaths) AS judged (run_key, epoch, owner, takeovers), LATERAL (
            SELECT r.run_key, r.ctid AS place FROM {schema}.runs AS r
            WHERE r.run_key = judged.run_key AND r.epoch = judged.epoch AND r.owner IS NOT DISTINCT FROM judged.owner
              AND (r.expires_at IS NULL OR r.expires_at <= the_time) AND r.needs_repair IS NULL
              AND (r.status IN ('running', 'halted')) IS TRUE AND r.flow_id || ' ' || r.flow_hash = ANY (flows)
              AND (r.status = 'running' OR r.signal IS NOT NULL
                   OR (SELECT min(wake_at) FROM {schema}.waits WHERE waits.run_key = r.run_key) <= the_time)
            FOR NO KEY UPDATE SKIP LOCKED) AS run
        LIMIT cardinality(new_owners)) AS found;
    IF locked IS NULL THEN
        RETURN;
    END IF;
    PERFORM nextval('{schema}.changes');
    SELECT array_agg(wait.place) INTO due
    FROM unnest(locked) AS given (run_key), LATERAL (
        SELECT w.ctid AS place FROM {schema}.waits AS w
        WHERE w.run_key = given.run_key AND (w.status = 'open' AND scheduler = '' AND due_at <= the_time) IS TRUE
        OFFSET 0) AS wait;
    IF due IS NOT NULL THEN
        UPDATE {schema}.waits
        SET status = 'settled', settled_at = the_time, settled_by = 'clock',
            wake_at = {schema}.wake_1((SELECT runs.status FROM {schema}.runs WHERE runs.run_key = waits.run_key),
                                      'settled', scheduler, due_at)
        WHERE waits.ctid = ANY (due);
    END IF;
    RETURN QUERY
        UPDATE {schema}.runs
        SET epoch = runs.epoch + 1, owner = new_owners[array_position(places, runs.ctid)],
            expires_at = the_time + the_ttl, process = the_process,
            takeovers = counted[array_position(places, runs.ctid)], claimed_sequence = coalesce(
                (SELECT max(sequence) FROM {schema}.checkpoints WHERE checkpoints.run_key = runs.run_key), 0)
        WHERE runs.ctid = ANY (places)
        RETURNING runs.*;
END $$;
