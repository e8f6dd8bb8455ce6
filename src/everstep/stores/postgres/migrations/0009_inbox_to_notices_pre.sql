-- Rows for what a run may have besides its chain: signals, events, tags, attributes, pauses, the audit log, child
-- runs, limits, singletons and notices. It only adds: columns that may be NULL, which writes no row anew, and tables
-- that are empty. A run that uses none of it has a row in none of these tables, and no statement of its own reads them.

ALTER TABLE {schema}.runs
    -- Since when its owner starts nothing. `needs_repair` says so too: claims of every release pass such a run over.
    ADD COLUMN paused_at        bigint,
    -- That what it did is being undone, and in the end what came of it.
    ADD COLUMN undoing          text COLLATE "C",
    -- The node of the run that started it as a child: run, visit, what becomes of it when that is cancelled, and path, with
    -- spaces between. The parent of a fork is `parent_run_id`.
    ADD COLUMN started_by       text COLLATE "C",
    -- Who is told of it: names of notifiers by occasion, as JSON.
    ADD COLUMN notifiers        text COLLATE "C";

-- What a wait listens for: a signal of its run, or an event with some fields.
ALTER TABLE {schema}.waits ADD COLUMN topic text COLLATE "C";

-- Signals of a run in the order of their numbers. One that was taken stays without its value, so that its id is known
-- for as long as the run is.
CREATE TABLE {schema}.inbox (
    run_key   bigint NOT NULL,
    number    bigint NOT NULL,
    signal_id text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    value     bytea,
    sent_at   bigint NOT NULL,
    -- The wait that it has settled. Once that is closed and the signal was not taken, it is free again.
    wait_id   text COLLATE "C",
    -- The sequence of the put that took it.
    taken_at  bigint,
    PRIMARY KEY (run_key, number),
    UNIQUE (run_key, signal_id)
);
CREATE INDEX inbox_untaken ON {schema}.inbox (run_key, name, number) WHERE taken_at IS NULL;
-- How many of them were not taken: to count them takes as long as there are many.
CREATE TABLE {schema}.inbox_sizes (
    run_key bigint PRIMARY KEY,
    untaken bigint NOT NULL
);

-- Events that are kept for waits that open later, and by which of their fields these find them.
CREATE TABLE {schema}.events (
    event_key    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id     text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    value        bytea NOT NULL,
    published_at bigint NOT NULL,
    expires_at   bigint NOT NULL,
    UNIQUE (name, event_id)
);
CREATE INDEX events_by_name ON {schema}.events (name, event_key);
CREATE INDEX events_by_end ON {schema}.events (expires_at);
CREATE TABLE {schema}.event_fields (
    name      text COLLATE "C" NOT NULL,
    field     text COLLATE "C" NOT NULL,
    hash      text COLLATE "C" NOT NULL,
    event_key bigint NOT NULL,
    PRIMARY KEY (name, field, hash, event_key)
);
CREATE INDEX event_fields_by_event ON {schema}.event_fields (event_key);
-- Which node of a run had which event: none has it twice.
CREATE TABLE {schema}.taken_events (
    run_key  bigint NOT NULL,
    path     text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_key, path, name, event_id)
);

-- Tags are anybody's with the role for it; attributes are the run's own, as its chain says. Of an attribute one of the
-- two values is there: a bool is 0 or 1, a time microseconds. A run has each name once, as whoever writes one has locked
-- the run; an index on the run alone holds its key once for all its labels, a unique one for each.
CREATE TABLE {schema}.tags (
    run_key bigint NOT NULL,
    name    text COLLATE "C" NOT NULL,
    value   text COLLATE "C" NOT NULL
);
CREATE INDEX tags_by_run ON {schema}.tags (run_key);
CREATE INDEX tags_by_value ON {schema}.tags (name, value, run_key);
CREATE TABLE {schema}.attributes (
    run_key      bigint NOT NULL,
    name         text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    text_value   text COLLATE "C",
    number_value double precision
);
CREATE INDEX attributes_by_run ON {schema}.attributes (run_key);
CREATE INDEX attributes_by_text ON {schema}.attributes (name, text_value, run_key) WHERE text_value IS NOT NULL;
CREATE INDEX attributes_by_number ON {schema}.attributes (name, number_value, run_key) WHERE number_value IS NOT NULL;

-- Flows, and groups of a flow, of which no run is claimed. '' is the flow as a whole.
CREATE TABLE {schema}.pauses (
    flow_id   text COLLATE "C" NOT NULL,
    run_group text COLLATE "C" NOT NULL,
    paused_at bigint NOT NULL,
    note      bytea,
    PRIMARY KEY (flow_id, run_group)
);

-- Who did what. It outlives the runs it tells of.
CREATE TABLE {schema}.audit (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Made by who acts: what is written twice, for a reply was lost, is one row.
    audit_id text COLLATE "C" NOT NULL UNIQUE,
    at       bigint NOT NULL,
    act      text COLLATE "C" NOT NULL,
    actor    text COLLATE "C" NOT NULL,
    run_id   text COLLATE "C",
    details  bytea NOT NULL
);
CREATE INDEX audit_by_run ON {schema}.audit (run_id, number) WHERE run_id IS NOT NULL;

-- What is kept of one key of a limit: when runs or calls began that count, and which calls hold a place. A run's keys are
-- its group.
CREATE TABLE {schema}.limit_states (
    limit_key text COLLATE "C" PRIMARY KEY,
    state     bytea NOT NULL
);

-- What notifiers are to tell of: the put that changes a status writes it.
CREATE TABLE {schema}.notices (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_key  bigint NOT NULL,
    notifier text COLLATE "C" NOT NULL,
    occasion text COLLATE "C" NOT NULL,
    at       bigint,
    sequence bigint NOT NULL DEFAULT 0,
    -- When it is tried next. Nothing there: it was sent, or is tried no more.
    due_at   bigint,
    tries    integer NOT NULL DEFAULT 0,
    sent_at  bigint,
    -- The wait that it tells of again, and the microseconds until it does so once more.
    wait_id  text COLLATE "C",
    every    bigint NOT NULL DEFAULT 0,
    round    integer NOT NULL DEFAULT 0,
    error    text COLLATE "C" NOT NULL DEFAULT ''
);
CREATE INDEX notices_by_run ON {schema}.notices (run_key, number);
CREATE INDEX notices_due ON {schema}.notices (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX notices_dead ON {schema}.notices (number) WHERE due_at IS NULL AND sent_at IS NULL;

-- Whichever client changes the status of a run. Who is told of which is in its row: decided when it was admitted.
CREATE FUNCTION {schema}.tell_status_9() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.notices (run_key, notifier, occasion, at, sequence, due_at)
    SELECT new.run_key, one.value, new.status, coalesce(new.ended_at, {schema}.now_1()),
           (SELECT max(c.sequence) FROM {schema}.checkpoints AS c WHERE c.run_key = new.run_key), 0
    FROM json_array_elements_text(coalesce(new.notifiers::json -> new.status, '[]')) AS one;
    IF new.status <> 'halted' THEN -- one that has ended is not overdue
        DELETE FROM {schema}.notices WHERE run_key = new.run_key AND occasion = 'overdue' AND sent_at IS NULL;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_status AFTER UPDATE OF status ON {schema}.runs
FOR EACH ROW WHEN (new.notifiers IS NOT NULL AND new.status <> old.status AND new.status <> 'running')
EXECUTE FUNCTION {schema}.tell_status_9();
-- A fork is told of as its parent is.
CREATE FUNCTION {schema}.tell_of_fork_9() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.notifiers := (SELECT parent.notifiers FROM {schema}.runs AS parent WHERE parent.run_id = new.parent_run_id);
    RETURN new;
END $$;
CREATE TRIGGER tell_of_fork BEFORE INSERT ON {schema}.runs
FOR EACH ROW WHEN (new.parent_run_id IS NOT NULL AND new.notifiers IS NULL)
EXECUTE FUNCTION {schema}.tell_of_fork_9();

-- Whichever client erases a run, nothing of it stays in these tables.
CREATE FUNCTION {schema}.forget_runs_9() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.inbox USING gone WHERE inbox.run_key = gone.run_key;
    DELETE FROM {schema}.inbox_sizes USING gone WHERE inbox_sizes.run_key = gone.run_key;
    DELETE FROM {schema}.taken_events USING gone WHERE taken_events.run_key = gone.run_key;
    DELETE FROM {schema}.tags USING gone WHERE tags.run_key = gone.run_key;
    DELETE FROM {schema}.attributes USING gone WHERE attributes.run_key = gone.run_key;
    DELETE FROM {schema}.notices USING gone WHERE notices.run_key = gone.run_key;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_more AFTER DELETE ON {schema}.runs REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION {schema}.forget_runs_9();

-- Brings free signals of a run and its open waits for them together, of each name the oldest and the oldest, as
-- engine.settling says. Who calls it has locked the run.
CREATE FUNCTION {schema}.pair_9(the_key bigint, the_time bigint) RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    open_one record;
    signal record;
BEGIN
    FOR open_one IN
        SELECT w.wait_key, w.wait_id, w.topic FROM {schema}.waits AS w
        WHERE w.run_key = the_key AND w.status = 'open' AND w.status IN ('open', 'settled')
          AND w.topic >= 'signal:' AND w.topic < 'signal;'
          AND (w.due_at IS NULL OR w.due_at > the_time)
        ORDER BY w.wait_key
    LOOP
        SELECT i.number, i.value INTO signal
        FROM {schema}.inbox AS i LEFT JOIN {schema}.waits AS had ON had.wait_id = i.wait_id
        WHERE i.run_key = the_key AND i.taken_at IS NULL AND i.name = substring(open_one.topic FROM 8)
          AND (i.wait_id IS NULL OR coalesce(had.status, 'closed') = 'closed')
        ORDER BY i.number LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        UPDATE {schema}.inbox SET wait_id = open_one.wait_id WHERE run_key = the_key AND number = signal.number;
        UPDATE {schema}.waits
        SET status = 'settled', settled_at = the_time, settled_by = 'answer', answer = signal.value,
            wake_at = {schema}.wake_1((SELECT runs.status FROM {schema}.runs WHERE runs.run_key = the_key),
                                      'settled', scheduler, due_at)
        WHERE wait_key = open_one.wait_key;
    END LOOP;
END $$;

-- Counts signals of a run that were not taken. Who calls it has locked the run.
CREATE FUNCTION {schema}.resize_9(the_key bigint, more bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO {schema}.inbox_sizes AS s VALUES (the_key, more)
    ON CONFLICT (run_key) DO UPDATE SET untaken = s.untaken + more
$$;

-- Takes signals of a run that were not taken, and returns how many. Who calls it has locked the run.
CREATE FUNCTION {schema}.take_9(the_key bigint, ids text[], the_sequence bigint) RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    the_id text;
    taken bigint := 0;
BEGIN
    FOREACH the_id IN ARRAY ids LOOP
        UPDATE {schema}.inbox SET taken_at = the_sequence, value = NULL
        WHERE run_key = the_key AND taken_at IS NULL
          AND number = (SELECT i.number FROM {schema}.inbox AS i WHERE i.run_key = the_key AND i.signal_id = the_id);
        IF FOUND THEN taken := taken + 1; END IF;
    END LOOP;
    IF taken > 0 THEN PERFORM {schema}.resize_9(the_key, -taken); END IF;
    RETURN taken;
END $$;

-- Puts a signal into the inbox of a run. The run is locked, so that signals are numbered without gaps.
CREATE FUNCTION {schema}.send_9(
    the_run text, the_id text, the_name text, the_value bytea, most bigint, the_time bigint, channel text
) RETURNS text LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    run record;
BEGIN
    SELECT run_key, status INTO run FROM {schema}.runs WHERE run_id = the_run FOR NO KEY UPDATE;
    IF NOT FOUND THEN RETURN 'unknown_run'; END IF;
    the_time := coalesce(the_time, {schema}.now_1());
    IF EXISTS (SELECT FROM {schema}.inbox WHERE run_key = run.run_key AND signal_id = the_id) THEN
        RETURN 'same';
    END IF;
    IF run.status NOT IN ('running', 'halted') THEN RETURN 'ended'; END IF;
    IF (SELECT untaken FROM {schema}.inbox_sizes WHERE run_key = run.run_key) >= most THEN
        RETURN 'full';
    END IF;
    INSERT INTO {schema}.inbox (run_key, number, signal_id, name, value, sent_at)
    SELECT run.run_key, coalesce(max(number), 0) + 1, the_id, the_name, the_value, the_time
    FROM {schema}.inbox WHERE run_key = run.run_key;
    PERFORM {schema}.resize_9(run.run_key, 1);
    PERFORM {schema}.pair_9(run.run_key, the_time);
    PERFORM nextval('{schema}.changes');
    PERFORM pg_notify(channel, '');
    RETURN 'sent';
END $$;

-- Keeps a row of the audit log, once; in the transaction of what it tells of.
CREATE FUNCTION {schema}.audit_9(
    the_id text, the_act text, the_actor text, the_run text, the_details bytea, the_time bigint
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO {schema}.audit (audit_id, at, act, actor, run_id, details)
    VALUES (the_id, coalesce(the_time, {schema}.now_1()), the_act, the_actor, the_run, the_details)
    ON CONFLICT (audit_id) DO NOTHING
$$;

-- As put_6, for commits of which some take signals, open or close waits for them, bring labels, or say for the audit
-- log who acts. One that was accepted before finds nothing more to do: labels may have changed since.
CREATE FUNCTION {schema}.put_9(given json, bodies bytea, the_time bigint, channel text) RETURNS text[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    there text[] := ARRAY(SELECT runs.run_id FROM json_to_recordset(given) AS c(run_id text, tags json)
                          JOIN {schema}.runs ON runs.run_id = c.run_id WHERE c.tags IS NOT NULL);
    verdicts text[] := {schema}.put_6(given, bodies, the_time, channel);
    done record;
BEGIN
    FOR done IN
        SELECT c.place, c.run_id, c.sequence, c.taken, c.pairs, c.listening, c.tags, c.attributes, c.audit, r.run_key
        FROM json_to_recordset(given) AS c(
            place integer, run_id text, sequence bigint, taken json, pairs boolean, listening json, tags json,
            attributes json, audit json)
        JOIN {schema}.runs AS r ON r.run_id = c.run_id
        WHERE c.taken IS NOT NULL OR c.pairs OR c.listening IS NOT NULL OR c.tags IS NOT NULL
           OR c.attributes IS NOT NULL OR c.audit IS NOT NULL
        ORDER BY r.run_key
    LOOP
        CONTINUE WHEN verdicts[done.place + 1] <> 'accepted';
        IF done.audit IS NOT NULL THEN
            PERFORM {schema}.audit_9(
                done.audit ->> 'id', done.audit ->> 'act', done.audit ->> 'by', done.audit ->> 'run',
                decode(done.audit ->> 'details', 'hex'), the_time);
        END IF;
        IF done.taken IS NOT NULL THEN
            PERFORM {schema}.take_9(
                done.run_key, ARRAY(SELECT json_array_elements_text(done.taken)), done.sequence);
        END IF;
        IF done.pairs THEN
            PERFORM {schema}.pair_9(done.run_key, coalesce(the_time, {schema}.now_1()));
        END IF;
        IF done.listening IS NOT NULL THEN
            PERFORM {schema}.pair_events_9(
                done.run_key, done.listening, coalesce(the_time, {schema}.now_1()), {event_lock});
        END IF;
        IF done.tags IS NOT NULL AND done.run_id <> ALL (there) THEN
            PERFORM {schema}.label_9(done.run_key, done.tags, NULL);
        END IF;
        IF done.attributes IS NOT NULL AND NOT EXISTS (
            SELECT FROM {schema}.checkpoints WHERE run_key = done.run_key AND sequence > done.sequence
        ) THEN
            PERFORM {schema}.label_9(done.run_key, NULL, done.attributes);
        END IF;
    END LOOP;
    RETURN verdicts;
END $$;

-- Gives a run labels: tags as names and values, attributes as names, kinds, texts and numbers. Who calls it has locked the
-- run, or has just made it.
CREATE FUNCTION {schema}.label_9(the_key bigint, tags json, attributes json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF tags IS NOT NULL THEN
        UPDATE {schema}.tags AS t SET value = one ->> 1
        FROM json_array_elements(tags) AS one WHERE t.run_key = the_key AND t.name = one ->> 0;
        INSERT INTO {schema}.tags (run_key, name, value)
        SELECT the_key, one ->> 0, one ->> 1 FROM json_array_elements(tags) AS one
        WHERE NOT EXISTS (SELECT FROM {schema}.tags AS t WHERE t.run_key = the_key AND t.name = one ->> 0);
    END IF;
    IF attributes IS NOT NULL THEN
        UPDATE {schema}.attributes AS a
        SET kind = one ->> 1, text_value = one ->> 2, number_value = (one ->> 3)::double precision
        FROM json_array_elements(attributes) AS one WHERE a.run_key = the_key AND a.name = one ->> 0;
        INSERT INTO {schema}.attributes (run_key, name, kind, text_value, number_value)
        SELECT the_key, one ->> 0, one ->> 1, one ->> 2, (one ->> 3)::double precision
        FROM json_array_elements(attributes) AS one
        WHERE NOT EXISTS (SELECT FROM {schema}.attributes AS a WHERE a.run_key = the_key AND a.name = one ->> 0);
    END IF;
END $$;

-- Settles one wait with an event, unless the node of its run had that before. Who calls it has locked the run.
CREATE FUNCTION {schema}.give_event_9(
    the_wait bigint, the_run bigint, the_path text, the_name text, the_event text, the_value bytea, the_time bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.taken_events (run_key, path, name, event_id)
    VALUES (the_run, the_path, the_name, the_event)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE {schema}.waits
    SET status = 'settled', settled_at = the_time, settled_by = 'answer', answer = the_value,
        wake_at = {schema}.wake_1((SELECT runs.status FROM {schema}.runs WHERE runs.run_key = the_run),
                                  'settled', scheduler, due_at)
    WHERE wait_key = the_wait;
    RETURN true;
END $$;

-- Settles open waits of a run with events that are kept. A lock on the name of the event, which its publisher takes alone,
-- is held until the put is committed: either this sees the event, or the publisher the wait.
CREATE FUNCTION {schema}.pair_events_9(the_key bigint, listening json, the_time bigint, lock integer)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one record;
    event record;
BEGIN
    FOR one IN
        SELECT l.name, l.hashes, l.many, w.wait_key, w.path
        FROM json_to_recordset(listening) AS l(wait_id text, name text, hashes json, many integer)
        JOIN {schema}.waits AS w ON w.wait_id = l.wait_id
        WHERE w.run_key = the_key AND w.status = 'open' AND (w.due_at IS NULL OR w.due_at > the_time)
        ORDER BY l.name, w.wait_key
    LOOP
        PERFORM pg_advisory_xact_lock_shared(lock, hashtext(one.name));
        SELECT e.event_id, e.value INTO event
        FROM {schema}.events AS e
        WHERE e.name = one.name AND e.expires_at > the_time
          AND (one.many = 0 OR e.event_key IN (
              SELECT f.event_key FROM json_each_text(one.hashes) AS wanted
              JOIN {schema}.event_fields AS f
                  ON f.name = one.name AND f.field = wanted.key AND f.hash = wanted.value
              GROUP BY f.event_key HAVING count(*) = one.many))
          AND NOT EXISTS (SELECT FROM {schema}.taken_events AS t
                          WHERE t.run_key = the_key AND t.path = one.path AND t.name = e.name
                            AND t.event_id = e.event_id)
        ORDER BY e.event_key LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        PERFORM {schema}.give_event_9(
            one.wait_key, the_key, one.path, one.name, event.event_id, event.value, the_time);
    END LOOP;
END $$;

-- Settles open waits for some topics with an event, and returns how many. Runs are locked in the order in which groups of
-- commits lock them.
CREATE FUNCTION {schema}.settle_event_9(
    the_topics text[], the_name text, the_event text, the_value bytea, most integer, the_time bigint, channel text
) RETURNS integer LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    keys bigint[];
    one record;
    given integer := 0;
BEGIN
    the_time := coalesce(the_time, {schema}.now_1());
    SELECT array_agg(DISTINCT found.run_key) INTO keys
    FROM (SELECT w.run_key FROM {schema}.waits AS w
          WHERE w.topic = ANY (the_topics) AND w.status = 'open' AND (w.due_at IS NULL OR w.due_at > the_time)
            AND NOT EXISTS (SELECT FROM {schema}.taken_events AS t
                            WHERE t.run_key = w.run_key AND t.path = w.path AND t.name = the_name
                              AND t.event_id = the_event)
          LIMIT most) AS found;
    IF keys IS NULL THEN RETURN 0; END IF;
    PERFORM 1 FROM {schema}.runs WHERE run_key = ANY (keys) ORDER BY run_key FOR NO KEY UPDATE;
    FOR one IN
        SELECT w.wait_key, w.run_key, w.path FROM unnest(keys) AS k (run_key)
        JOIN {schema}.waits AS w ON w.run_key = k.run_key
        WHERE w.topic = ANY (the_topics) AND w.status = 'open' AND (w.due_at IS NULL OR w.due_at > the_time)
        ORDER BY w.wait_key
    LOOP
        IF {schema}.give_event_9(
            one.wait_key, one.run_key, one.path, the_name, the_event, the_value, the_time) THEN
            given := given + 1;
        END IF;
    END LOOP;
    PERFORM nextval('{schema}.changes');
    PERFORM pg_notify(channel, '');
    RETURN given;
END $$;
