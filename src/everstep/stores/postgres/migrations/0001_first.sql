-- Times are microseconds since 1970, as everywhere in everstep; to_timestamp(created_at / 1e6) shows one.
-- Names are bytes to us: collation "C" compares them as such, and any database may hold them.
CREATE TABLE {schema}.runs (
    run_key          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id           text COLLATE "C" NOT NULL UNIQUE,
    flow_id          text COLLATE "C" NOT NULL,
    flow_version     text COLLATE "C" NOT NULL,
    flow_hash        text COLLATE "C" NOT NULL,
    parent_run_id    text COLLATE "C",
    status           text COLLATE "C" NOT NULL,
    created_at       bigint NOT NULL,
    ended_at         bigint,
    epoch            bigint NOT NULL,
    owner            text COLLATE "C",
    expires_at       bigint,
    process          text COLLATE "C",
    takeovers        integer NOT NULL DEFAULT 0,
    claimed_sequence bigint NOT NULL DEFAULT 1,
    signal           text COLLATE "C",
    acked_at         bigint,
    -- A fork is a run whose first record follows one of its parent's; nothing of the parent is copied.
    forked_at        bigint,
    -- Checkpoints with a smaller sequence are stubs: their body is the digest alone.
    trimmed_before   bigint NOT NULL DEFAULT 0,
    adopted_at       bigint
);

-- Running runs by the end of their lease, and those without one by age.
CREATE INDEX runs_by_lease ON {schema}.runs (expires_at) WHERE status = 'running';
CREATE INDEX runs_ownerless ON {schema}.runs (run_key) WHERE status = 'running' AND expires_at IS NULL;
CREATE INDEX runs_signalled ON {schema}.runs (run_key) WHERE signal IS NOT NULL;
CREATE INDEX runs_by_parent ON {schema}.runs (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_by_flow ON {schema}.runs (flow_id, run_key);
CREATE INDEX runs_by_status ON {schema}.runs (status, run_key);

CREATE TABLE {schema}.checkpoints (
    run_key       bigint  NOT NULL,
    sequence      bigint  NOT NULL,
    keyframe      boolean NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    body          bytea   NOT NULL,
    PRIMARY KEY (run_key, sequence)
);
CREATE INDEX checkpoints_keyframes ON {schema}.checkpoints (run_key, sequence) WHERE keyframe;

-- In the order in which they became known, so that a worker can tell older ones from newer ones.
CREATE TABLE {schema}.blueprints (
    number    bigint GENERATED ALWAYS AS IDENTITY,
    flow_hash text COLLATE "C" PRIMARY KEY,
    structure bytea NOT NULL
);

-- What runs halt for. A wait stays when it is closed, so that a late answer is told that it is late.
CREATE TABLE {schema}.waits (
    wait_key         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    wait_id          text COLLATE "C" NOT NULL UNIQUE,
    run_key          bigint NOT NULL,
    flow_id          text COLLATE "C" NOT NULL,
    path             text COLLATE "C" NOT NULL,
    visit            bigint NOT NULL,
    kind             text COLLATE "C" NOT NULL,
    opened_at        bigint NOT NULL,
    details          bytea NOT NULL,
    due_at           bigint,
    scheduler        text COLLATE "C" NOT NULL,
    schedule_id      text COLLATE "C",
    notifies         boolean NOT NULL,
    notified_at      bigint,
    token_hash       bytea,
    token_expires_at bigint,
    generation       bigint NOT NULL,
    single_use       boolean NOT NULL,
    status           text COLLATE "C" NOT NULL,
    settled_at       bigint,
    settled_by       text COLLATE "C",
    answer           bytea,
    -- When somebody should drive the run because of this wait: its time while it is open, 0 once it is settled.
    -- None unless the run is halted, so that whoever looks for work never meets the waits of other runs.
    wake_at          bigint
);
CREATE INDEX waits_by_run ON {schema}.waits (run_key, wait_key);
CREATE INDEX waits_unclosed ON {schema}.waits (status, wait_key) WHERE status IN ('open', 'settled');
CREATE INDEX waits_by_token ON {schema}.waits (token_hash) WHERE token_hash IS NOT NULL;
CREATE INDEX waits_by_wake ON {schema}.waits (wake_at) WHERE wake_at > 0;
CREATE INDEX waits_settled ON {schema}.waits (settled_at) WHERE wake_at = 0;
CREATE INDEX waits_untold ON {schema}.waits (wait_key)
WHERE status = 'open'
  AND ((notifies AND notified_at IS NULL) OR (scheduler <> '' AND due_at IS NOT NULL AND schedule_id IS NULL));

CREATE TABLE {schema}.artifacts (
    digest  text COLLATE "C" PRIMARY KEY,
    content bytea NOT NULL
);
-- Whoever wants artifacts smaller compresses them before.
ALTER TABLE {schema}.artifacts ALTER COLUMN content SET STORAGE EXTERNAL;

-- Its last value says that somebody wrote, without a table that every writer would have to touch.
CREATE SEQUENCE {schema}.changes CACHE 1;

CREATE FUNCTION {schema}.now_1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

CREATE FUNCTION {schema}.wake_1(run_status text, wait_status text, scheduler text, due_at bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN run_status <> 'halted' OR wait_status = 'closed' THEN NULL
                WHEN wait_status = 'settled' THEN 0
                WHEN scheduler = '' AND due_at IS NOT NULL THEN greatest(due_at, 1) END
$$;

-- Why a put was refused. One that is already there was accepted; its reply was lost.
CREATE FUNCTION {schema}.refusal_1(
    the_run text, the_sequence bigint, the_checkpoint text, the_base text, the_epoch bigint
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    seen record;
BEGIN
    SELECT runs.epoch, runs.signal, here.checkpoint_id AS here, base.checkpoint_id AS base INTO seen
    FROM {schema}.runs
    LEFT JOIN {schema}.checkpoints AS here ON here.run_key = runs.run_key AND here.sequence = the_sequence
    LEFT JOIN {schema}.checkpoints AS base ON base.run_key = runs.run_key AND base.sequence = the_sequence - 1
    WHERE runs.run_id = the_run;
    IF NOT FOUND THEN RETURN 'unknown_run'; END IF;
    IF seen.here = the_checkpoint THEN RETURN 'accepted'; END IF;
    IF seen.epoch <> the_epoch THEN RETURN 'fenced'; END IF;
    IF seen.here IS NOT NULL OR seen.base IS DISTINCT FROM the_base THEN RETURN 'moved'; END IF;
    RETURN CASE WHEN seen.signal IS NOT NULL THEN 'signalled' ELSE 'moved' END;
END $$;

-- One step of a run: accepted only if the writer's epoch is the newest, nobody asked the run to stop, and the
-- record before it is its base. The run's row is locked first, so that no claim comes in between. A record that
-- was there already is 'accepted', one that is written now is 'new'.
CREATE FUNCTION {schema}.put_step_1(
    the_run text, the_sequence bigint, the_checkpoint text, the_base text, the_epoch bigint, is_keyframe boolean,
    the_body bytea, ignores_signal boolean
) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.checkpoints (run_key, sequence, checkpoint_id, keyframe, body)
    SELECT run.run_key, the_sequence, the_checkpoint, is_keyframe, the_body
    FROM (SELECT run_key FROM {schema}.runs
          WHERE run_id = the_run AND epoch = the_epoch AND (signal IS NULL OR ignores_signal)
          FOR NO KEY UPDATE) AS run
    WHERE the_base = (SELECT checkpoint_id FROM {schema}.checkpoints AS base
                      WHERE base.run_key = run.run_key AND base.sequence = the_sequence - 1)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM nextval('{schema}.changes');
        RETURN 'new';
    END IF;
    RETURN {schema}.refusal_1(the_run, the_sequence, the_checkpoint, the_base, the_epoch);
END $$;

-- The first put of a run. A fork's base must be there, whole.
CREATE FUNCTION {schema}.admit_1(
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
        created_at bigint, owner text, ttl bigint, process text);
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
                                   epoch, owner, expires_at, process, claimed_sequence, forked_at)
        VALUES (the_run, admission.flow_id, admission.flow_version, admission.flow_hash, admission.parent_run_id,
                'running', admission.created_at, the_epoch, admission.owner,
                CASE WHEN admission.owner IS NOT NULL
                     THEN coalesce(the_time, {schema}.now_1()) + admission.ttl END,
                admission.process, the_sequence, admission.forked_at)
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

-- What an accepted commit brings besides its record.
CREATE FUNCTION {schema}.follow_1(
    the_run text, the_sequence bigint, new_status text, the_end bigint, opened json, closed json, adopted json
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run record;
BEGIN
    IF new_status IS NOT NULL THEN
        UPDATE {schema}.runs
        SET status = new_status, ended_at = the_end,
            owner = CASE WHEN new_status = 'running' THEN owner END,
            expires_at = CASE WHEN new_status = 'running' THEN expires_at END,
            process = CASE WHEN new_status = 'running' THEN process END,
            signal = CASE WHEN new_status IN ('running', 'halted') THEN signal END
        WHERE run_id = the_run;
    END IF;
    SELECT run_key, status INTO run FROM {schema}.runs WHERE run_id = the_run;
    IF opened IS NOT NULL THEN
        INSERT INTO {schema}.waits (
            wait_id, run_key, flow_id, path, visit, kind, opened_at, details, due_at, scheduler, schedule_id,
            notifies, notified_at, token_hash, token_expires_at, generation, single_use, status, settled_at,
            settled_by, answer, wake_at)
        SELECT wait_id, run.run_key, flow_id, path, visit, kind, opened_at, details, due_at, scheduler, schedule_id,
               notifies, notified_at, token_hash, token_expires_at, generation, single_use, status, settled_at,
               settled_by, answer, {schema}.wake_1(run.status, status, scheduler, due_at)
        FROM json_to_recordset(opened) AS w(
            wait_id text, flow_id text, path text, visit bigint, kind text, opened_at bigint, details bytea,
            due_at bigint, scheduler text, schedule_id text, notifies boolean, notified_at bigint,
            token_hash bytea, token_expires_at bigint, generation bigint, single_use boolean, status text,
            settled_at bigint, settled_by text, answer bytea);
    END IF;
    IF closed IS NOT NULL THEN
        UPDATE {schema}.waits SET status = 'closed', wake_at = NULL
        WHERE waits.run_key = run.run_key AND wait_id IN (SELECT json_array_elements_text(closed));
    END IF;
    IF new_status IN ('completed', 'cancelled') THEN
        UPDATE {schema}.waits SET status = 'closed', wake_at = NULL
        WHERE waits.run_key = run.run_key AND status IN ('open', 'settled');
    ELSIF new_status IS NOT NULL THEN
        UPDATE {schema}.waits SET wake_at = {schema}.wake_1(new_status, status, scheduler, due_at)
        WHERE waits.run_key = run.run_key AND status IN ('open', 'settled')
          AND wake_at IS DISTINCT FROM {schema}.wake_1(new_status, status, scheduler, due_at);
    END IF;
    IF adopted IS NOT NULL THEN
        INSERT INTO {schema}.blueprints (flow_hash, structure)
        VALUES (adopted ->> 'flow_hash', (adopted ->> 'blueprint')::bytea) ON CONFLICT DO NOTHING;
        UPDATE {schema}.runs
        SET flow_version = adopted ->> 'flow_version', flow_hash = adopted ->> 'flow_hash', adopted_at = the_sequence
        WHERE run_id = the_run;
    END IF;
END $$;

-- Many commits of many runs in one transaction, each judged alone. The bodies lie in one string, in order.
CREATE FUNCTION {schema}.put_1(given json, bodies bytea, the_time bigint, channel text) RETURNS text[]
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
        WHERE run_id = ANY (ARRAY(SELECT value ->> 'run_id' FROM json_array_elements(given)))
        ORDER BY run_key FOR NO KEY UPDATE;
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
            verdict := {schema}.admit_1(
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
