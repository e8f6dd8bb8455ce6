-- What workers go by when they choose: the priority of a run, and the group it takes turns with. '' is no group.
ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN run_group TEXT NOT NULL DEFAULT '';
ALTER TABLE waits ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE waits ADD COLUMN run_group TEXT NOT NULL DEFAULT '';

-- Why workers leave a run alone: it was found damaged.
ALTER TABLE runs ADD COLUMN needs_repair TEXT;
CREATE INDEX runs_damaged ON runs (run_key) WHERE needs_repair IS NOT NULL;

-- Accepted runs by whose turn it is. A run that is driven where it was started never comes here.
CREATE INDEX runs_waiting ON runs (flow_id, priority, run_group) WHERE status = 'running' AND expires_at IS NULL;

-- Halted runs by whose turn it is, once they wake.
CREATE INDEX waits_by_lane ON waits (flow_id, priority, run_group, wake_at, settled_at) WHERE wake_at IS NOT NULL;

-- Leases that hold, besides those of running runs.
CREATE INDEX runs_held ON runs (expires_at) WHERE status <> 'running' AND expires_at IS NOT NULL;

-- Listings of one flow or one status read no other runs. Running ones are found by their lease; completed ones
-- are many, and soon met from the newest on. So most runs come into neither index but that of their flow.
CREATE INDEX runs_by_flow ON runs (flow_id);
CREATE INDEX runs_by_status ON runs (status) WHERE status <> 'running' AND status <> 'completed';

CREATE TABLE workers (
    worker_id  TEXT    PRIMARY KEY,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    details    BLOB    NOT NULL
) WITHOUT ROWID;
