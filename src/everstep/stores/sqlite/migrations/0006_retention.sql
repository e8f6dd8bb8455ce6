ALTER TABLE runs ADD COLUMN pinned TEXT;
CREATE INDEX runs_pinned ON runs (run_key) WHERE pinned IS NOT NULL;

-- What is left of runs that were erased. A listing may go on from one of them, so its key is known.
CREATE TABLE tombstones (
    number     INTEGER PRIMARY KEY,
    run_key    INTEGER NOT NULL,
    run_id     TEXT    NOT NULL UNIQUE,
    flow_id    TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    erased_at  INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    summary    BLOB
);

-- No key is given twice, or a client that remembers it would take one run for another.
CREATE TABLE erased_keys (newest INTEGER NOT NULL);
INSERT INTO erased_keys VALUES (0);

CREATE TABLE removals (
    number  INTEGER PRIMARY KEY,
    details BLOB NOT NULL
);
