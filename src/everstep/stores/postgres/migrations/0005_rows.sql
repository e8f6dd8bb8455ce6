-- Rows of runs and waits come as JSON with the names of the columns, so that a column that is added later needs no
-- other function. Such a column may be NULL: clients that do not know it leave it out.

-- As admit_2, with the row itself; and an id that is taken is said before what is wrong with the base of a fork.
CREATE FUNCTION {schema}.admit_5(
    the_run text, the_sequence bigint, the_checkpoint text, the_base text, is_keyframe boolean, the_body bytea,
    given json, the_time bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    the_row jsonb := given -> 'row';
    the_fork bigint := the_row ->> 'forked_at';
    parent record;
    refused text;
    the_key bigint;
BEGIN
    IF the_fork IS NOT NULL THEN
        -- Trimming waits for this, and this for trimming.
        SELECT runs.trimmed_before, base.checkpoint_id AS base INTO parent
        FROM {schema}.runs
        LEFT JOIN {schema}.checkpoints AS base ON base.run_key = runs.run_key AND base.sequence = the_fork
        WHERE runs.run_id = the_row ->> 'parent_run_id' FOR NO KEY UPDATE OF runs;
        IF NOT FOUND THEN
            refused := 'unknown_run';
        ELSIF parent.base IS DISTINCT FROM the_base OR parent.base IS NULL
              OR parent.trimmed_before > the_fork OR the_sequence <> the_fork + 1 THEN
            refused := 'moved';
        END IF;
    END IF;
    IF refused IS NULL THEN
        IF the_row ->> 'owner' IS NOT NULL THEN
            the_row := the_row || jsonb_build_object(
                'expires_at', coalesce(the_time, {schema}.now_1()) + (given ->> 'ttl')::bigint);
        END IF;
        INSERT INTO {schema}.runs OVERRIDING USER VALUE
        SELECT * FROM jsonb_populate_record(NULL::{schema}.runs, the_row)
        ON CONFLICT (run_id) DO NOTHING RETURNING run_key INTO the_key;
    END IF;
    IF the_key IS NULL THEN
        RETURN coalesce(
            (SELECT CASE WHEN here.checkpoint_id = the_checkpoint THEN 'accepted' ELSE 'exists' END
             FROM {schema}.runs
             LEFT JOIN {schema}.checkpoints AS here
                    ON here.run_key = runs.run_key AND here.sequence = the_sequence
             WHERE runs.run_id = the_run),
            (SELECT 'exists' FROM {schema}.tombstones WHERE run_id = the_run),
            refused, 'exists');
    END IF;
    INSERT INTO {schema}.checkpoints (run_key, sequence, checkpoint_id, keyframe, body)
    VALUES (the_key, the_sequence, the_checkpoint, is_keyframe, the_body);
    IF given ->> 'blueprint' IS NOT NULL THEN
        INSERT INTO {schema}.blueprints (flow_hash, structure)
        VALUES (the_row ->> 'flow_hash', (given ->> 'blueprint')::bytea) ON CONFLICT DO NOTHING;
    END IF;
    PERFORM nextval('{schema}.changes');
    RETURN 'new';
END $$;

-- The waits that a commit opens, or a restored run brings. What the commit makes of its run decides when they wake it.
CREATE FUNCTION {schema}.open_5(the_run text, new_status text, opened json) RETURNS void LANGUAGE sql AS $$
    INSERT INTO {schema}.waits OVERRIDING USER VALUE
    SELECT wait.*
    FROM {schema}.runs, json_array_elements(opened) AS given,
         LATERAL jsonb_populate_record(NULL::{schema}.waits, given.value::jsonb || jsonb_build_object(
             'run_key', runs.run_key,
             'wake_at', {schema}.wake_1(coalesce(new_status, runs.status), given.value ->> 'status',
                                        given.value ->> 'scheduler', (given.value ->> 'due_at')::bigint))) AS wait
    WHERE runs.run_id = the_run
$$;

-- As put_2, with these. A plan that was made while a table was empty reads the table from end to end, and is kept for
-- the whole group: what all of this looks for is in an index.
CREATE FUNCTION {schema}.put_5(given json, bodies bytea, the_time bigint, channel text) RETURNS text[]
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    c record;
    place integer := 1;
    body bytea;
    verdict text;
    verdicts text[] := '{}';
BEGIN
    -- In one order for every client, or two groups could wait for each other.
    IF json_array_length(given) > 1 THEN
        PERFORM 1 FROM {schema}.runs
        WHERE run_id = ANY (ARRAY(
            SELECT unnest(ARRAY[value ->> 'run_id', value #>> '{admission,row,parent_run_id}'])
            FROM json_array_elements(given)))
        ORDER BY run_key FOR NO KEY UPDATE;
        IF strpos(given::text, '"blueprint":"') > 0 THEN
            INSERT INTO {schema}.blueprints (flow_hash, structure)
            SELECT DISTINCT ON (1) flow_hash, blueprint::bytea
            FROM json_array_elements(given),
                 LATERAL (VALUES (value #>> '{admission,row,flow_hash}', value #>> '{admission,blueprint}'),
                                 (value #>> '{adopts,flow_hash}', value #>> '{adopts,blueprint}')
                         ) AS brought (flow_hash, blueprint)
            WHERE blueprint IS NOT NULL ORDER BY 1
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
            verdict := {schema}.admit_5(
                c.run_id, c.sequence, c.checkpoint_id, c.base, c.keyframe, body, c.admission, the_time);
        END IF;
        IF verdict = 'new' THEN
            IF c.waits IS NOT NULL THEN
                PERFORM {schema}.open_5(c.run_id, c.status, c.waits);
            END IF;
            IF c.status IS NOT NULL OR c.closed IS NOT NULL OR c.adopts IS NOT NULL THEN
                PERFORM {schema}.follow_1(c.run_id, c.sequence, c.status, c.ended_at, NULL, c.closed, c.adopts);
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
