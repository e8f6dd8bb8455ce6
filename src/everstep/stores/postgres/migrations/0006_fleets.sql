-- What a claim looks for lies by flow, so that it reads nothing of the flows it is not asked for. What these take the
-- place of goes; the statements of older clients find their way by them too.
CREATE INDEX runs_ready ON {schema}.runs (flow_id, flow_hash, run_key)
WHERE status = 'running' AND expires_at IS NULL AND needs_repair IS NULL;
CREATE INDEX runs_by_lease ON {schema}.runs (flow_id, flow_hash, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX runs_by_signal ON {schema}.runs (flow_id, flow_hash, run_key) WHERE signal IS NOT NULL;
CREATE INDEX waits_ready ON {schema}.waits (flow_id, lane_hash, wake_at, settled_at) WHERE wake_at IS NOT NULL;
DROP INDEX {schema}.runs_ownerless;
DROP INDEX {schema}.runs_leased;
DROP INDEX {schema}.runs_signalled;
DROP INDEX {schema}.waits_settled;

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
