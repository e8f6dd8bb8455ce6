-- What workers go by when they choose: the priority of a run, and the group it takes turns with. '' is no group.
ALTER TABLE {schema}.runs ADD COLUMN priority bigint NOT NULL DEFAULT 0;
ALTER TABLE {schema}.runs ADD COLUMN run_group text COLLATE "C" NOT NULL DEFAULT '';
-- Why workers leave a run alone: it was found damaged.
ALTER TABLE {schema}.runs ADD COLUMN needs_repair text COLLATE "C";

-- The same of a wait's run. The names are new: statements of schema 1 that join the two tables stay clear.
ALTER TABLE {schema}.waits ADD COLUMN lane_hash text COLLATE "C";
ALTER TABLE {schema}.waits ADD COLUMN lane_priority bigint NOT NULL DEFAULT 0;
ALTER TABLE {schema}.waits ADD COLUMN lane_group text COLLATE "C" NOT NULL DEFAULT '';
UPDATE {schema}.waits SET lane_hash = runs.flow_hash FROM {schema}.runs WHERE runs.run_key = waits.run_key;

CREATE INDEX runs_damaged ON {schema}.runs (run_key) WHERE needs_repair IS NOT NULL;
-- Every lease, whatever the status of its run.
CREATE INDEX runs_leased ON {schema}.runs (expires_at) WHERE expires_at IS NOT NULL;
DROP INDEX {schema}.runs_by_lease;
-- Accepted runs by whose turn it is. A run that is driven where it was started never comes here.
CREATE INDEX runs_waiting ON {schema}.runs (flow_id, flow_hash, priority, run_group, run_key)
WHERE status = 'running' AND expires_at IS NULL AND needs_repair IS NULL;
-- Halted runs by whose turn it is, once they wake.
CREATE INDEX waits_by_lane ON {schema}.waits (flow_id, lane_hash, lane_priority, lane_group, wake_at, settled_at)
WHERE wake_at IS NOT NULL;

CREATE TABLE {schema}.workers (
    worker_id  text COLLATE "C" PRIMARY KEY,
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    expires_at bigint NOT NULL,
    details    bytea  NOT NULL
);

-- A wait knows what its run is, whoever opens it: clients of schema 1 do not tell.
CREATE FUNCTION {schema}.place_wait_2() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT runs.flow_hash, runs.priority, runs.run_group INTO new.lane_hash, new.lane_priority, new.lane_group
    FROM {schema}.runs WHERE runs.run_key = new.run_key;
    RETURN new;
END $$;
CREATE TRIGGER place_wait BEFORE INSERT ON {schema}.waits FOR EACH ROW EXECUTE FUNCTION {schema}.place_wait_2();

CREATE FUNCTION {schema}.move_waits_2() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {schema}.waits SET lane_hash = new.flow_hash WHERE waits.run_key = new.run_key;
    RETURN NULL;
END $$;
CREATE TRIGGER move_waits AFTER UPDATE OF flow_hash ON {schema}.runs
FOR EACH ROW WHEN (old.flow_hash IS DISTINCT FROM new.flow_hash) EXECUTE FUNCTION {schema}.move_waits_2();

-- As admit_1, with what workers go by.
CREATE FUNCTION {schema}.admit_2(
    the_run text, the_sequence bigint, the_checkpoint text, the_base text, the_epoch bigint, is_keyframe boolean,
    the_body bytea, given json, the_time bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    admission record;
    parent record;
    refused text;
    the_key bigint;
BEGIN
    SELECT * INTO admission FROM json_to_record(given) AS a(
        flow_id text, flow_version text, flow_hash text, blueprint bytea, parent_run_id text, forked_at bigint,
        created_at bigint, owner text, ttl bigint, process text, priority bigint, run_group text);
    IF admission.forked_at IS NOT NULL THEN
        -- Trimming waits for this, and this for trimming.
        SELECT runs.trimmed_before, base.checkpoint_id AS base INTO parent
        FROM {schema}.runs
        LEFT JOIN {schema}.checkpoints AS base
               ON base.run_key = runs.run_key AND base.sequence = admission.forked_at
        WHERE runs.run_id = admission.parent_run_id FOR NO KEY UPDATE OF runs;
        IF NOT FOUND THEN
            refused := 'unknown_run';
        ELSIF parent.base IS DISTINCT FROM the_base OR parent.base IS NULL
              OR parent.trimmed_before > admission.forked_at OR the_sequence <> admission.forked_at + 1 THEN
            refused := 'moved';
        END IF;
    END IF;
    IF refused IS NULL THEN
        INSERT INTO {schema}.runs (run_id, flow_id, flow_version, flow_hash, parent_run_id, status, created_at,
                                   epoch, owner, expires_at, process, claimed_sequence, forked_at, priority,
                                   run_group)
        VALUES (the_run, admission.flow_id, admission.flow_version, admission.flow_hash, admission.parent_run_id,
                'running', admission.created_at, the_epoch, admission.owner,
                CASE WHEN admission.owner IS NOT NULL
                     THEN coalesce(the_time, {schema}.now_1()) + admission.ttl END,
                admission.process, the_sequence, admission.forked_at, coalesce(admission.priority, 0),
                coalesce(admission.run_group, ''))
        ON CONFLICT (run_id) DO NOTHING RETURNING run_key INTO the_key;
    END IF;
    IF the_key IS NULL THEN
        RETURN coalesce(
            (SELECT CASE WHEN here.checkpoint_id = the_checkpoint THEN 'accepted' ELSE 'exists' END
             FROM {schema}.runs
             LEFT JOIN {schema}.checkpoints AS here
                    ON here.run_key = runs.run_key AND here.sequence = the_sequence
             WHERE runs.run_id = the_run),
            refused, 'exists');
    END IF;
    INSERT INTO {schema}.checkpoints (run_key, sequence, checkpoint_id, keyframe, body)
    VALUES (the_key, the_sequence, the_checkpoint, is_keyframe, the_body);
    IF admission.blueprint IS NOT NULL THEN
        INSERT INTO {schema}.blueprints (flow_hash, structure)
        VALUES (admission.flow_hash, admission.blueprint) ON CONFLICT DO NOTHING;
    END IF;
    PERFORM nextval('{schema}.changes');
    RETURN 'new';
END $$;

-- As put_1, with admit_2; what forks go on from, and new structures, are locked in one order too.
CREATE FUNCTION {schema}.put_2(given json, bodies bytea, the_time bigint, channel text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    c record;
    place integer := 1;
    body bytea;
    verdict text;
    verdicts text[] := '{}';
BEGIN
    -- In one order for everybody, or two groups could wait for each other.
    IF json_array_length(given) > 1 THEN
        PERFORM 1 FROM {schema}.runs
        WHERE run_id = ANY (ARRAY(
            SELECT unnest(ARRAY[value ->> 'run_id', value #>> '{admission,parent_run_id}'])
            FROM json_array_elements(given)))
        ORDER BY run_key FOR NO KEY UPDATE;
        IF strpos(given::text, '"blueprint":"') > 0 THEN
            INSERT INTO {schema}.blueprints (flow_hash, structure)
            SELECT DISTINCT ON (1) part ->> 'flow_hash', (part ->> 'blueprint')::bytea
            FROM json_array_elements(given), unnest(ARRAY[value -> 'admission', value -> 'adopts']) AS part
            WHERE part ->> 'blueprint' IS NOT NULL ORDER BY 1
            ON CONFLICT DO NOTHING;
        END IF;
    END IF;
    FOR c IN
        SELECT * FROM json_to_recordset(given) AS c(
            run_id text, sequence bigint, checkpoint_id text, base text, epoch bigint, keyframe boolean,
            ignores boolean, size integer, status text, ended_at bigint, admission json, waits json, closed json,
            adopts json)
    LOOP
        body := substring(bodies FROM place FOR c.size);
        place := place + c.size;
        IF c.admission IS NULL THEN
            verdict := {schema}.put_step_1(
                c.run_id, c.sequence, c.checkpoint_id, c.base, c.epoch, c.keyframe, body, c.ignores);
        ELSE
            verdict := {schema}.admit_2(
                c.run_id, c.sequence, c.checkpoint_id, c.base, c.epoch, c.keyframe, body, c.admission, the_time);
        END IF;
        IF verdict = 'new' THEN
            IF c.status IS NOT NULL OR c.waits IS NOT NULL OR c.closed IS NOT NULL OR c.adopts IS NOT NULL THEN
                PERFORM {schema}.follow_1(
                    c.run_id, c.sequence, c.status, c.ended_at, c.waits, c.closed, c.adopts);
            END IF;
            verdict := 'accepted';
        END IF;
        verdicts := verdicts || verdict;
    END LOOP;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, '');
    END IF;
    RETURN verdicts;
END $$;

-- Accepted runs of some flows, lane by lane: each flow's highest priority first, its groups in turn after the one
-- that was served last. From each lane come as many runs as one claim can use, from a flow as many lanes. Lanes
-- where nothing is due end the walk when they are too many: what has been due for long is found without it. A flow's
-- full groups are the keys of an object in its place; none of their runs may be claimed, so they are passed over.
CREATE FUNCTION {schema}.waiting_lanes_2(
    names text[], hashes text[], last_groups text[], apart_from text[], most integer, full_groups jsonb
) RETURNS TABLE (run_key bigint, run_id text, since bigint, priority bigint, flow_id text, run_group text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    the_priority bigint;
    the_group text;
    full_here jsonb;
    is_around boolean;
    met integer;
    passed integer;
    found_here integer;
BEGIN
    FOR i IN 1 .. cardinality(names) LOOP
        full_here := full_groups -> (i - 1);
        the_priority := NULL;
        met := 0;
        passed := 0;
        LOOP
            SELECT max(r.priority) INTO the_priority FROM {schema}.runs AS r
            WHERE r.status = 'running' AND r.expires_at IS NULL AND r.needs_repair IS NULL
              AND r.flow_id = names[i] AND r.flow_hash = hashes[i]
              AND r.priority < coalesce(the_priority, 9223372036854775807);
            EXIT WHEN the_priority IS NULL OR met >= most OR passed - met > 1000;
            the_group := last_groups[i];
            is_around := the_group IS NULL;
            LOOP
                SELECT min(r.run_group) INTO the_group FROM {schema}.runs AS r
                WHERE r.status = 'running' AND r.expires_at IS NULL AND r.needs_repair IS NULL
                  AND r.flow_id = names[i] AND r.flow_hash = hashes[i] AND r.priority = the_priority
                  AND r.run_group >= coalesce(the_group || chr(1), '');
                IF the_group IS NULL AND NOT is_around THEN
                    is_around := true;
                    CONTINUE;
                END IF;
                EXIT WHEN the_group IS NULL OR met >= most OR passed - met > 1000
                       OR (is_around AND the_group > last_groups[i]);
                CONTINUE WHEN full_here ? the_group;
                RETURN QUERY
                    SELECT r.run_key, r.run_id, r.created_at, r.priority, r.flow_id, r.run_group
                    FROM {schema}.runs AS r
                    WHERE r.status = 'running' AND r.expires_at IS NULL AND r.needs_repair IS NULL
                      AND r.flow_id = names[i] AND r.flow_hash = hashes[i] AND r.priority = the_priority
                      AND r.run_group = the_group AND r.run_id <> ALL (apart_from)
                    ORDER BY r.run_key LIMIT most;
                GET DIAGNOSTICS found_here = ROW_COUNT;
                met := met + (found_here > 0)::integer;
                passed := passed + 1;
            END LOOP;
        END LOOP;
    END LOOP;
END $$;

-- Halted runs that are due, lane by lane as above.
CREATE FUNCTION {schema}.waking_lanes_2(
    names text[], hashes text[], last_groups text[], apart_from text[], most integer, full_groups jsonb,
    the_time bigint
) RETURNS TABLE (run_key bigint, run_id text, since bigint, priority bigint, flow_id text, run_group text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    the_priority bigint;
    the_group text;
    full_here jsonb;
    is_around boolean;
    met integer;
    passed integer;
    found_here integer;
BEGIN
    FOR i IN 1 .. cardinality(names) LOOP
        full_here := full_groups -> (i - 1);
        the_priority := NULL;
        met := 0;
        passed := 0;
        LOOP
            SELECT max(w.lane_priority) INTO the_priority FROM {schema}.waits AS w
            WHERE w.wake_at IS NOT NULL AND w.flow_id = names[i] AND w.lane_hash = hashes[i]
              AND w.lane_priority < coalesce(the_priority, 9223372036854775807);
            EXIT WHEN the_priority IS NULL OR met >= most OR passed - met > 1000;
            the_group := last_groups[i];
            is_around := the_group IS NULL;
            LOOP
                SELECT min(w.lane_group) INTO the_group FROM {schema}.waits AS w
                WHERE w.wake_at IS NOT NULL AND w.flow_id = names[i] AND w.lane_hash = hashes[i]
                  AND w.lane_priority = the_priority AND w.lane_group >= coalesce(the_group || chr(1), '');
                IF the_group IS NULL AND NOT is_around THEN
                    is_around := true;
                    CONTINUE;
                END IF;
                EXIT WHEN the_group IS NULL OR met >= most OR passed - met > 1000
                       OR (is_around AND the_group > last_groups[i]);
                CONTINUE WHEN full_here ? the_group;
                RETURN QUERY
                    SELECT r.run_key, r.run_id, CASE WHEN w.wake_at = 0 THEN w.settled_at ELSE w.wake_at END,
                           r.priority, r.flow_id, r.run_group
                    FROM {schema}.waits AS w JOIN {schema}.runs AS r USING (run_key)
                    WHERE w.wake_at <= the_time AND w.flow_id = names[i] AND w.lane_hash = hashes[i]
                      AND w.lane_priority = the_priority AND w.lane_group = the_group AND r.needs_repair IS NULL
                      AND (r.expires_at IS NULL OR r.expires_at <= the_time) AND r.run_id <> ALL (apart_from)
                    ORDER BY w.wake_at, w.settled_at LIMIT most;
                GET DIAGNOSTICS found_here = ROW_COUNT;
                met := met + (found_here > 0)::integer;
                passed := passed + 1;
            END LOOP;
        END LOOP;
    END LOOP;
END $$;
