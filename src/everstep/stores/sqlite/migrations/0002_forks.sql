-- A fork is a run whose first record follows one of its parent's; nothing of the parent is copied.
ALTER TABLE runs ADD COLUMN forked_at INTEGER;

-- Checkpoints with a smaller sequence are stubs: their body is the digest alone.
ALTER TABLE runs ADD COLUMN trimmed_before INTEGER NOT NULL DEFAULT 0;

CREATE INDEX runs_by_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;
