-- Runs that are due, of some flows: the kind, since when, and their lane. Of each kind and flow come the longest due,
-- no more than a claim can use; where more of them wait, or wake, they come lane by lane. Planned once a session.
CREATE FUNCTION {schema}.due_6(
    the_time bigint, names text[], hashes text[], apart_from text[], most integer, last_groups text[], full_groups jsonb
) RETURNS TABLE (kind integer, run_key bigint, run_id text, since bigint, priority bigint, flow_id text, run_group text)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    found_here integer;
BEGIN
    RETURN QUERY
        SELECT 0, r.run_key, r.run_id, 0::bigint, r.priority, r.flow_id, r.run_group
        FROM unnest(names, hashes) AS f (name, hash), LATERAL (
            SELECT * FROM {schema}.runs
            WHERE signal IS NOT NULL AND flow_id = f.name AND flow_hash = f.hash AND (status = 'halted') IS TRUE
              AND (expires_at IS NULL OR expires_at <= the_time) AND needs_repair IS NULL
              AND run_id <> ALL (apart_from)
            ORDER BY run_key LIMIT most) AS r;
    RETURN QUERY
        SELECT 3, r.run_key, r.run_id, r.expires_at, r.priority, r.flow_id, r.run_group
        FROM unnest(names, hashes) AS f (name, hash), LATERAL (
            SELECT * FROM {schema}.runs
            WHERE expires_at IS NOT NULL AND expires_at <= the_time AND flow_id = f.name AND flow_hash = f.hash
              AND (status = 'running') IS TRUE AND needs_repair IS NULL AND run_id <> ALL (apart_from)
            ORDER BY expires_at LIMIT most) AS r;

    -- What has been due for long is found by its age also where the lanes are too many to walk.
    RETURN QUERY
        SELECT 1, r.run_key, r.run_id, r.since, r.priority, r.flow_id, r.run_group
        FROM unnest(names, hashes) AS f (name, hash), LATERAL (
            (SELECT run.*, settled.settled_at AS since
             FROM (SELECT w.run_key, w.settled_at FROM {schema}.waits AS w
                   WHERE w.wake_at = 0 AND w.flow_id = f.name AND w.lane_hash = f.hash
                   ORDER BY w.settled_at OFFSET 0) AS settled,
                  LATERAL (SELECT x.run_key, x.run_id, x.priority, x.flow_id, x.run_group FROM {schema}.runs AS x
                           WHERE x.run_key = settled.run_key AND x.needs_repair IS NULL
                             AND (x.expires_at IS NULL OR x.expires_at <= the_time)
                             AND x.run_id <> ALL (apart_from) OFFSET 0) AS run
             ORDER BY settled.settled_at LIMIT most)
            UNION ALL
            (SELECT run.*, due.wake_at
             FROM (SELECT w.run_key, w.wake_at FROM {schema}.waits AS w
                   WHERE w.wake_at > 0 AND w.wake_at <= the_time AND w.flow_id = f.name AND w.lane_hash = f.hash
                   ORDER BY w.wake_at OFFSET 0) AS due,
                  LATERAL (SELECT x.run_key, x.run_id, x.priority, x.flow_id, x.run_group FROM {schema}.runs AS x
                           WHERE x.run_key = due.run_key AND x.needs_repair IS NULL
                             AND (x.expires_at IS NULL OR x.expires_at <= the_time)
                             AND x.run_id <> ALL (apart_from) OFFSET 0) AS run
             ORDER BY due.wake_at LIMIT most)) AS r;
    GET DIAGNOSTICS found_here = ROW_COUNT;
    IF found_here >= most THEN
        RETURN QUERY SELECT 1, * FROM {schema}.waking_lanes_2(
            names, hashes, last_groups, apart_from, most, full_groups, the_time);
    END IF;

    SELECT count(*) INTO found_here FROM (
        SELECT FROM unnest(names, hashes) AS f (name, hash), LATERAL (
            SELECT FROM {schema}.runs
            WHERE status = 'running' AND expires_at IS NULL AND needs_repair IS NULL
              AND flow_id = f.name AND flow_hash = f.hash LIMIT most) AS r
        LIMIT most) AS ready;
    IF found_here >= most THEN
        RETURN QUERY SELECT 2, * FROM {schema}.waiting_lanes_2(
            names, hashes, last_groups, apart_from, most, full_groups);
    ELSIF found_here > 0 THEN
        -- When a lease was given back is not known; an old run is taken for one that has waited long.
        RETURN QUERY
            SELECT 2, r.run_key, r.run_id, r.created_at, r.priority, r.flow_id, r.run_group
            FROM unnest(names, hashes) AS f (name, hash), LATERAL (
                SELECT * FROM {schema}.runs
                WHERE status = 'running' AND expires_at IS NULL AND needs_repair IS NULL
                  AND flow_id = f.name AND flow_hash = f.hash AND run_id <> ALL (apart_from)
                ORDER BY run_key) AS r;
    END IF;
END $$;

-- Why a run was not admitted. One that is already there was admitted before; its reply was lost.
CREATE FUNCTION {schema}.refused_admission_6(the_run text, the_sequence bigint, the_checkpoint text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT CASE WHEN here.checkpoint_id = the_checkpoint THEN 'accepted' ELSE 'exists' END
         FROM {schema}.runs
         LEFT JOIN {schema}.checkpoints AS here ON here.run_key = runs.run_key AND here.sequence = the_sequence
         WHERE runs.run_id = the_run),
        'exists')
$$;

-- What accepted commits bring besides their records, as follow_1 does it for one: ends and halts, waits that open or
-- close, structures that runs go over to.
CREATE FUNCTION {schema}.follow_6(given json, accepted jsonb) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    brings record;
BEGIN
    SELECT bool_or(status IS NOT NULL) AS status, bool_or(waits IS NOT NULL) AS waits,
           bool_or(closed IS NOT NULL) AS closed, bool_or(adopts IS NOT NULL) AS adopts INTO brings
    FROM json_to_recordset(given) AS c(run_id text, status text, waits json, closed json, adopts json)
    WHERE accepted ? run_id;
    IF brings.status THEN
        UPDATE {schema}.runs
        SET status = c.status, ended_at = c.ended_at,
            owner = CASE WHEN c.status = 'running' THEN owner END,
            expires_at = CASE WHEN c.status = 'running' THEN expires_at END,
            process = CASE WHEN c.status = 'running' THEN process END,
            signal = CASE WHEN c.status IN ('running', 'halted') THEN signal END
        FROM json_to_recordset(given) AS c(run_id text, status text, ended_at bigint)
        WHERE runs.run_id = c.run_id AND c.status IS NOT NULL AND accepted ? c.run_id;
    END IF;
    IF brings.waits THEN
        PERFORM {schema}.open_5(c.run_id, c.status, c.waits)
        FROM json_to_recordset(given) AS c(run_id text, status text, waits json)
        WHERE c.waits IS NOT NULL AND accepted ? c.run_id;
    END IF;
    IF brings.closed THEN
        -- By their ids, whatever the plan was made for: a run may have had any number of waits.
        UPDATE {schema}.waits SET status = 'closed', wake_at = NULL
        WHERE wait_key = ANY (ARRAY(
            SELECT found.wait_key
            FROM json_to_recordset(given) AS c(run_id text, closed json), json_array_elements_text(c.closed) AS gone (wait_id),
                 LATERAL (SELECT w.wait_key, w.run_key FROM {schema}.waits AS w
                          WHERE w.wait_id = gone.wait_id OFFSET 0) AS found
            JOIN {schema}.runs ON runs.run_key = found.run_key
            WHERE runs.run_id = c.run_id AND accepted ? c.run_id));
    END IF;
    IF brings.status THEN
        UPDATE {schema}.waits
        SET status = CASE WHEN c.status IN ('completed', 'cancelled') THEN 'closed' ELSE waits.status END,
            wake_at = CASE WHEN c.status IN ('completed', 'cancelled') THEN NULL
                           ELSE {schema}.wake_1(c.status, waits.status, scheduler, due_at) END
        FROM json_to_recordset(given) AS c(run_id text, status text)
        JOIN {schema}.runs USING (run_id)
        WHERE waits.run_key = runs.run_key AND waits.status IN ('open', 'settled')
          AND c.status IS NOT NULL AND accepted ? c.run_id
          AND (c.status IN ('completed', 'cancelled')
               OR wake_at IS DISTINCT FROM {schema}.wake_1(c.status, waits.status, scheduler, due_at));
    END IF;
    IF brings.adopts THEN
        INSERT INTO {schema}.blueprints (flow_hash, structure)
        SELECT adopts ->> 'flow_hash', (adopts ->> 'blueprint')::bytea
        FROM json_to_recordset(given) AS c(run_id text, adopts json)
        WHERE adopts IS NOT NULL AND accepted ? run_id ORDER BY 1
        ON CONFLICT DO NOTHING;
        UPDATE {schema}.runs
        SET flow_version = adopts ->> 'flow_version', flow_hash = adopts ->> 'flow_hash', adopted_at = c.sequence
        FROM json_to_recordset(given) AS c(run_id text, sequence bigint, adopts json)
        WHERE runs.run_id = c.run_id AND adopts IS NOT NULL AND accepted ? c.run_id;
    END IF;
END $$;

-- Commits of many runs in one transaction, one of each run, each judged alone as put_step_1 and admit_5 do. All of a
-- kind are written by one statement. The bodies lie in one string, in order.
CREATE FUNCTION {schema}.put_6(given json, bodies bytea, the_time bigint, channel text) RETURNS text[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    kinds record;
    accepted jsonb := '{}';
    forked jsonb;
    verdicts text[];
BEGIN
    SELECT count(*) AS commits, bool_or(admission IS NULL) AS steps, bool_or(admission IS NOT NULL) AS admissions,
           bool_or(admission #>> '{row,forked_at}' IS NOT NULL) AS forks,
           bool_or(admission ->> 'blueprint' IS NOT NULL) AS blueprints,
           bool_or(status IS NOT NULL OR waits IS NOT NULL OR closed IS NOT NULL OR adopts IS NOT NULL) AS more
    INTO kinds
    FROM json_to_recordset(given) AS c(admission json, status text, waits json, closed json, adopts json);
    -- In one order for every client, or two groups could wait for each other.
    IF kinds.commits > 1 AND (kinds.steps OR kinds.forks) THEN
        PERFORM 1 FROM {schema}.runs
        WHERE run_id = ANY (ARRAY(
            SELECT unnest(ARRAY[value ->> 'run_id', value #>> '{admission,row,parent_run_id}'])
            FROM json_array_elements(given)))
        ORDER BY run_key FOR NO KEY UPDATE;
    END IF;
    IF kinds.blueprints THEN
        INSERT INTO {schema}.blueprints (flow_hash, structure)
        SELECT DISTINCT ON (1) admission #>> '{row,flow_hash}', (admission ->> 'blueprint')::bytea
        FROM json_to_recordset(given) AS c(admission json)
        WHERE admission ->> 'blueprint' IS NOT NULL ORDER BY 1
        ON CONFLICT DO NOTHING;
    END IF;
    IF kinds.steps THEN
        WITH written AS (
            INSERT INTO {schema}.checkpoints (run_key, sequence, checkpoint_id, keyframe, body)
            SELECT run.run_key, c.sequence, c.checkpoint_id, c.keyframe, substring(bodies FROM c.first FOR c.size)
            FROM json_to_recordset(given) AS c(
                     run_id text, sequence bigint, checkpoint_id text, base text, epoch bigint, keyframe boolean,
                     ignores boolean, first integer, size integer, admission json),
                 LATERAL (SELECT runs.run_key FROM {schema}.runs
                          WHERE runs.run_id = c.run_id AND runs.epoch = c.epoch AND (signal IS NULL OR c.ignores)
                          FOR NO KEY UPDATE) AS run
            WHERE c.admission IS NULL
              AND c.base = (SELECT before.checkpoint_id FROM {schema}.checkpoints AS before
                            WHERE before.run_key = run.run_key AND before.sequence = c.sequence - 1)
            ON CONFLICT DO NOTHING RETURNING run_key)
        SELECT coalesce(jsonb_object_agg(run_id, 1), '{}') INTO accepted FROM written JOIN {schema}.runs USING (run_key);
    END IF;
    IF kinds.admissions THEN
        WITH admitted AS (
            INSERT INTO {schema}.runs OVERRIDING USER VALUE
            SELECT run.*
            FROM json_to_recordset(given) AS c(place integer, admission jsonb),
                 LATERAL jsonb_populate_record(NULL::{schema}.runs, (c.admission -> 'row') || CASE
                     WHEN c.admission #>> '{row,owner}' IS NULL THEN '{}' ELSE jsonb_build_object(
                         'expires_at', coalesce(the_time, {schema}.now_1()) + (c.admission ->> 'ttl')::bigint)
                     END) AS run
            WHERE c.admission IS NOT NULL AND c.admission #>> '{row,forked_at}' IS NULL
            ORDER BY c.place
            ON CONFLICT (run_id) DO NOTHING RETURNING run_key, run_id
        ), written AS (
            INSERT INTO {schema}.checkpoints (run_key, sequence, checkpoint_id, keyframe, body)
            SELECT admitted.run_key, c.sequence, c.checkpoint_id, c.keyframe,
                   substring(bodies FROM c.first FOR c.size)
            FROM admitted JOIN json_to_recordset(given) AS c(
                run_id text, sequence bigint, checkpoint_id text, keyframe boolean, first integer, size integer)
                USING (run_id)
            RETURNING run_key)
        SELECT accepted || coalesce(jsonb_object_agg(run_id, 1), '{}') INTO accepted
        FROM written JOIN admitted USING (run_key);
    END IF;
    IF kinds.forks THEN
        SELECT jsonb_object_agg(run_id, {schema}.admit_5(
            run_id, sequence, checkpoint_id, base, keyframe, substring(bodies FROM first FOR size), admission, the_time))
        INTO forked
        FROM json_to_recordset(given) AS c(
            run_id text, sequence bigint, checkpoint_id text, base text, keyframe boolean, first integer, size integer,
            admission json)
        WHERE admission #>> '{row,forked_at}' IS NOT NULL;
        SELECT accepted || coalesce(jsonb_object_agg(key, 1), '{}') INTO accepted
        FROM jsonb_each_text(forked) WHERE value = 'new';
    END IF;
    IF kinds.more THEN
        PERFORM {schema}.follow_6(given, accepted);
    END IF;
    IF accepted <> '{}' THEN
        PERFORM nextval('{schema}.changes');
    END IF;
    SELECT array_agg(CASE
        WHEN accepted ? c.run_id THEN 'accepted'
        WHEN c.admission IS NULL
            THEN {schema}.refusal_1(c.run_id, c.sequence, c.checkpoint_id, c.base, c.epoch)
        WHEN forked ? c.run_id THEN forked ->> c.run_id
        ELSE {schema}.refused_admission_6(c.run_id, c.sequence, c.checkpoint_id) END ORDER BY c.place) INTO verdicts
    FROM json_to_recordset(given) AS c(
        place integer, run_id text, sequence bigint, checkpoint_id text, base text, epoch bigint, admission json);
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, '');
    END IF;
    RETURN verdicts;
END $$;
