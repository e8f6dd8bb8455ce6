-- What runs halt for. A wait stays when it is closed, so that a late answer is told that it is late.
CREATE TABLE waits (
    wait_key         INTEGER PRIMARY KEY,
    wait_id          TEXT    NOT NULL UNIQUE,
    run_key          INTEGER NOT NULL,
    flow_id          TEXT    NOT NULL,
    path             TEXT    NOT NULL,
    visit            INTEGER NOT NULL,
    kind             TEXT    NOT NULL,
    opened_at        INTEGER NOT NULL,
    details          BLOB    NOT NULL,
    due_at           INTEGER,
    scheduler        TEXT    NOT NULL,
    schedule_id      TEXT,
    notifies         INTEGER NOT NULL,
    notified_at      INTEGER,
    token_hash       BLOB,
    token_expires_at INTEGER,
    generation       INTEGER NOT NULL,
    single_use       INTEGER NOT NULL,
    status           TEXT    NOT NULL,
    settled_at       INTEGER,
    settled_by       TEXT,
    answer           BLOB,
    -- When somebody should drive the run because of this wait: its time while it is open, 0 once it is settled.
    -- None unless the run is halted, so that whoever looks for work never meets the waits of other runs.
    wake_at          INTEGER
);

CREATE INDEX waits_by_run ON waits (run_key, status);

CREATE INDEX waits_unclosed ON waits (status) WHERE status IN ('open', 'settled');

CREATE INDEX waits_by_token ON waits (token_hash) WHERE token_hash IS NOT NULL;

CREATE INDEX waits_by_wake ON waits (wake_at, settled_at) WHERE wake_at IS NOT NULL;

CREATE INDEX waits_untold ON waits (wait_key)
WHERE status = 'open'
  AND ((notifies AND notified_at IS NULL) OR (scheduler <> '' AND due_at IS NOT NULL AND schedule_id IS NULL));

-- Running runs by the end of their lease, those without one first.
DROP INDEX runs_unfinished;
CREATE INDEX runs_by_lease ON runs (expires_at) WHERE status = 'running';

CREATE INDEX runs_signalled ON runs (run_key) WHERE signal IS NOT NULL;
