-- A checkpoint's position is its run's key and its sequence in one number, so a chain lies together in the
-- table, a put touches one page, and two records can never take the same place.
CREATE TABLE checkpoints (
    position      INTEGER PRIMARY KEY,
    checkpoint_id TEXT    NOT NULL,
    keyframe      INTEGER NOT NULL,
    body          BLOB    NOT NULL
);

CREATE TABLE runs (
    run_key          INTEGER PRIMARY KEY,
    run_id           TEXT    NOT NULL UNIQUE,
    flow_id          TEXT    NOT NULL,
    flow_version     TEXT    NOT NULL,
    flow_hash        TEXT    NOT NULL,
    parent_run_id    TEXT,
    status           TEXT    NOT NULL,
    created_at       INTEGER NOT NULL,
    ended_at         INTEGER,
    epoch            INTEGER NOT NULL,
    owner            TEXT,
    expires_at       INTEGER,
    process          TEXT,
    takeovers        INTEGER NOT NULL DEFAULT 0,
    claimed_sequence INTEGER NOT NULL DEFAULT 1,
    signal           TEXT,
    acked_at         INTEGER
);

-- Finished runs are listed by scanning from the newest; only the unfinished must be found among millions.
CREATE INDEX runs_unfinished ON runs (status) WHERE status IN ('running', 'halted');

CREATE TABLE blueprints (
    flow_hash TEXT PRIMARY KEY,
    structure BLOB NOT NULL
) WITHOUT ROWID;
