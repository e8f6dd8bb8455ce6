-- Rows for what a run may have besides its chain: signals, events, tags, attributes, pauses, the audit log, child
-- runs, limits, singletons and notices. Made in one go by the first client that needs one of them, outside the numbered
-- schema: earlier releases refuse a file with a number that they do not know, and a file that uses none of it is no larger.
CREATE TABLE side_schema (number INTEGER NOT NULL);
INSERT INTO side_schema VALUES (1);

-- Since when the owner of a run starts nothing. `needs_repair` says so too: claims of every release pass such a run over.
ALTER TABLE runs ADD COLUMN paused_at INTEGER;
-- That what it did is being undone, and in the end what came of it.
ALTER TABLE runs ADD COLUMN undoing TEXT;
-- Who is told of it: names of notifiers by occasion, as JSON.
ALTER TABLE runs ADD COLUMN notifiers TEXT;

CREATE INDEX waits_by_topic ON waits (topic) WHERE topic IS NOT NULL AND status = 'open';
-- By the run whose node started them, which is what comes before the first space.
CREATE INDEX runs_by_starter ON runs (substr(started_by, 1, instr(started_by, ' ') - 1)) WHERE started_by IS NOT NULL;
CREATE INDEX runs_paused ON runs (run_key) WHERE paused_at IS NOT NULL;
CREATE INDEX runs_undoing ON runs (run_key) WHERE undoing IS NOT NULL;

-- Signals of a run in the order of their numbers. One that was taken stays without its value, so that its id is known
-- for as long as the run is.
CREATE TABLE inbox (
    run_key   INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    signal_id TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    value     BLOB,
    sent_at   INTEGER NOT NULL,
    -- The wait that it has settled. Once that is closed and the signal was not taken, it is free again.
    wait_id   TEXT,
    -- The sequence of the put that took it.
    taken_at  INTEGER,
    PRIMARY KEY (run_key, number),
    UNIQUE (run_key, signal_id)
) WITHOUT ROWID;
CREATE INDEX inbox_untaken ON inbox (run_key, name, number) WHERE taken_at IS NULL;
-- How many of them were not taken: to count them takes as long as there are many.
CREATE TABLE inbox_sizes (
    run_key INTEGER PRIMARY KEY,
    untaken INTEGER NOT NULL
);
CREATE TRIGGER count_sent AFTER INSERT ON inbox WHEN new.taken_at IS NULL BEGIN
    INSERT INTO inbox_sizes VALUES (new.run_key, 1) ON CONFLICT (run_key) DO UPDATE SET untaken = untaken + 1;
END;
CREATE TRIGGER count_taken AFTER UPDATE OF taken_at ON inbox WHEN old.taken_at IS NULL AND new.taken_at IS NOT NULL BEGIN
    UPDATE inbox_sizes SET untaken = untaken - 1 WHERE run_key = new.run_key;
END;

-- Events that are kept for waits that open later, and by which of their fields these find them.
CREATE TABLE events (
    event_key    INTEGER PRIMARY KEY,
    event_id     TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    value        BLOB    NOT NULL,
    published_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    UNIQUE (name, event_id)
);
CREATE INDEX events_by_name ON events (name, event_key);
CREATE INDEX events_by_end ON events (expires_at);
CREATE TABLE event_fields (
    name      TEXT    NOT NULL,
    field     TEXT    NOT NULL,
    hash      TEXT    NOT NULL,
    event_key INTEGER NOT NULL,
    PRIMARY KEY (name, field, hash, event_key)
) WITHOUT ROWID;
CREATE INDEX event_fields_by_event ON event_fields (event_key);
CREATE TRIGGER forget_fields AFTER DELETE ON events BEGIN
    DELETE FROM event_fields WHERE event_key = old.event_key;
END;
-- Which node of a run had which event: none has it twice.
CREATE TABLE taken_events (
    run_key  INTEGER NOT NULL,
    path     TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    event_id TEXT    NOT NULL,
    PRIMARY KEY (run_key, path, name, event_id)
) WITHOUT ROWID;

-- Tags are anybody's with the role for it; attributes are the run's own, as its chain says. Of an attribute one of the
-- two values is there: a bool is 0 or 1, a time microseconds.
CREATE TABLE tags (
    run_key INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    value   TEXT    NOT NULL,
    PRIMARY KEY (run_key, name)
) WITHOUT ROWID;
CREATE INDEX tags_by_value ON tags (name, value, run_key);
CREATE TABLE attributes (
    run_key      INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    text_value   TEXT,
    number_value REAL,
    PRIMARY KEY (run_key, name)
) WITHOUT ROWID;
CREATE INDEX attributes_by_text ON attributes (name, text_value, run_key) WHERE text_value IS NOT NULL;
CREATE INDEX attributes_by_number ON attributes (name, number_value, run_key) WHERE number_value IS NOT NULL;

-- Flows, and groups of a flow, of which no run is claimed. '' is the flow as a whole.
CREATE TABLE pauses (
    flow_id   TEXT    NOT NULL,
    run_group TEXT    NOT NULL,
    paused_at INTEGER NOT NULL,
    note      BLOB,
    PRIMARY KEY (flow_id, run_group)
) WITHOUT ROWID;

-- Who did what. It outlives the runs it tells of.
CREATE TABLE audit (
    -- It only grows: a listing is continued from it, also when older rows were removed.
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Made by who acts: what is written twice, for a reply was lost, is one row.
    audit_id TEXT    NOT NULL UNIQUE,
    at       INTEGER NOT NULL,
    act      TEXT    NOT NULL,
    actor    TEXT    NOT NULL,
    run_id   TEXT,
    details  BLOB    NOT NULL
);
CREATE INDEX audit_by_run ON audit (run_id, number) WHERE run_id IS NOT NULL;

-- What is kept of one key of a limit: when runs or calls began that count, and which calls hold a place. A run's keys are
-- its group.
CREATE TABLE limit_states (
    limit_key TEXT PRIMARY KEY,
    state     BLOB NOT NULL
) WITHOUT ROWID;

-- What notifiers are to tell of: the put that changes a status writes it. No number is given twice.
CREATE TABLE notices (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    run_key  INTEGER NOT NULL,
    notifier TEXT    NOT NULL,
    occasion TEXT    NOT NULL,
    at       INTEGER,
    sequence INTEGER NOT NULL DEFAULT 0,
    -- When it is tried next. Nothing there: it was sent, or is tried no more.
    due_at   INTEGER,
    tries    INTEGER NOT NULL DEFAULT 0,
    sent_at  INTEGER,
    -- The wait that it tells of again, and the microseconds until it does so once more.
    wait_id  TEXT,
    every    INTEGER NOT NULL DEFAULT 0,
    round    INTEGER NOT NULL DEFAULT 0,
    error    TEXT    NOT NULL DEFAULT ''
);
CREATE INDEX notices_by_run ON notices (run_key, number);
CREATE INDEX notices_due ON notices (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX notices_dead ON notices (number) WHERE due_at IS NULL AND sent_at IS NULL;
-- Whichever client changes the status of a run. Who is told of which is in its row: decided when it was admitted.
CREATE TRIGGER tell_status AFTER UPDATE OF status ON runs
WHEN new.notifiers IS NOT NULL AND new.status <> old.status AND new.status <> 'running' BEGIN
    INSERT INTO notices (run_key, notifier, occasion, at, sequence, due_at)
    SELECT new.run_key, one.value, new.status, new.ended_at,
           (SELECT max(position) - (new.run_key << 32) FROM checkpoints
            WHERE position BETWEEN new.run_key << 32 AND (new.run_key << 32) + 4294967295), 0
    FROM json_each(new.notifiers, '$.' || new.status) AS one;
    -- One that has ended is not overdue.
    DELETE FROM notices WHERE run_key = new.run_key AND occasion = 'overdue' AND sent_at IS NULL AND new.status <> 'halted';
END;
-- A fork is told of as its parent is.
CREATE TRIGGER tell_of_fork AFTER INSERT ON runs WHEN new.parent_run_id IS NOT NULL AND new.notifiers IS NULL BEGIN
    UPDATE runs SET notifiers = (SELECT parent.notifiers FROM runs AS parent WHERE parent.run_id = new.parent_run_id)
    WHERE run_key = new.run_key;
END;

-- Whichever client erases a run, nothing of it stays in these tables.
CREATE TRIGGER forget_more AFTER DELETE ON runs BEGIN
    DELETE FROM inbox WHERE run_key = old.run_key;
    DELETE FROM inbox_sizes WHERE run_key = old.run_key;
    DELETE FROM taken_events WHERE run_key = old.run_key;
    DELETE FROM tags WHERE run_key = old.run_key;
    DELETE FROM attributes WHERE run_key = old.run_key;
    DELETE FROM notices WHERE run_key = old.run_key;
END;
