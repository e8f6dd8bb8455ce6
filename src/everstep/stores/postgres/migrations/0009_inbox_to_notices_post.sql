-- Indexes on tables that may be large: built beside clients at work, each in a statement of its own. What they serve is
-- found without them, too, more slowly.
CREATE INDEX CONCURRENTLY waits_by_topic ON {schema}.waits (topic, wait_key) WHERE topic IS NOT NULL AND status = 'open';
-- A run may have had any number of waits: whoever asks for those that are not closed passes over none.
CREATE INDEX CONCURRENTLY waits_unclosed_by_run ON {schema}.waits (run_key, wait_key) WHERE status IN ('open', 'settled');
CREATE INDEX CONCURRENTLY runs_by_starter ON {schema}.runs (split_part(started_by, ' ', 1), run_key) WHERE started_by IS NOT NULL;
CREATE INDEX CONCURRENTLY runs_paused ON {schema}.runs (run_key) WHERE paused_at IS NOT NULL;
CREATE INDEX CONCURRENTLY runs_undoing ON {schema}.runs (run_key) WHERE undoing IS NOT NULL;
