-- The order in which structures became known, so that a worker can tell older ones from newer ones.
ALTER TABLE blueprints ADD COLUMN number INTEGER NOT NULL DEFAULT 0;

-- The sequence of the last put with which a run went over to another version of its flow.
ALTER TABLE runs ADD COLUMN adopted_at INTEGER;
