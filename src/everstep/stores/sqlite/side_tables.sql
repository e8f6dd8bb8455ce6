-- Rows for what a run may have besides its chain: signals, events, tags, attributes, pauses, the audit log, child
-- runs, limits, singletons and notices. Made in one go by the first client that needs one of them, outside the numbered
-- schema: earlier releases refuse a file with a number that they do not know, and a file that uses none of it is no larger.
CREATE TABLE side_schema (number INTEGER NOT NULL);
INSERT INTO side_schema VALUES (1);

-- Since when the owner of a run starts nothing. `needs_repair` says so too: claims of every release pass such a run over.
ALTER TABLE runs ADD COLUMN paused_at INTEGER;
-- That what it did is being undone, and in the end what came of it.
ALTER TABLE runs ADD COLUMN undoing TEXT;
-- Who hears of its end: names of notifiers, as JSON.
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

-- What notifiers are to tell of: the put that changes a status writes it.
CREATE TABLE notices (
    number   INTEGER PRIMARY KEY,
    run_key  INTEGER NOT NULL,
    notifier TEXT    NOT NULL,
    status   TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    tries    INTEGER NOT NULL DEFAULT 0,
    due_at   INTEGER NOT NULL,
    sent_at  INTEGER
);
CREATE INDEX notices_by_run ON notices (run_key);
CREATE INDEX notices_unsent ON notices (due_at) WHERE sent_at IS NULL;

-- Whichever client erases a run, nothing of it stays in these tables.
CREATE TRIGGER forget_more AFTER DELETE ON runs BEGIN
    DELETE FROM inbox WHERE run_key = old.run_key;
    DELETE FROM inbox_sizes WHERE run_key = old.run_key;
    DELETE FROM taken_events WHERE run_key = old.run_key;
    DELETE FROM tags WHERE run_key = old.run_key;
    DELETE FROM attributes WHERE run_key = old.run_key;
    DELETE FROM notices WHERE run_key = old.run_key;
END;
