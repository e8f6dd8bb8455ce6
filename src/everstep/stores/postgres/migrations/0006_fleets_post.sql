-- What a claim looks for lies by flow, so that it reads nothing of the flows it is not asked for. What these take the
-- place of goes; the statements of older clients find their way by them too.
CREATE INDEX CONCURRENTLY runs_ready ON {schema}.runs (flow_id, flow_hash, run_key)
WHERE status = 'running' AND expires_at IS NULL AND needs_repair IS NULL;
CREATE INDEX CONCURRENTLY runs_by_lease ON {schema}.runs (flow_id, flow_hash, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX CONCURRENTLY runs_by_signal ON {schema}.runs (flow_id, flow_hash, run_key) WHERE signal IS NOT NULL;
CREATE INDEX CONCURRENTLY waits_ready ON {schema}.waits (flow_id, lane_hash, wake_at, settled_at) WHERE wake_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS {schema}.runs_ownerless;
DROP INDEX CONCURRENTLY IF EXISTS {schema}.runs_leased;
DROP INDEX CONCURRENTLY IF EXISTS {schema}.runs_signalled;
DROP INDEX CONCURRENTLY IF EXISTS {schema}.waits_settled;
