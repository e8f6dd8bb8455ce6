-- name: mark
WITH done AS (
    UPDATE {schema}.runs SET needs_repair = $3
    WHERE run_id = $1 AND needs_repair IS NOT DISTINCT FROM $2 AND status IN ('running', 'halted')
      AND (signal IS NULL OR $3::text IS NULL)
    RETURNING run_key
)
SELECT run_key, nextval('{schema}.changes'), pg_notify($4, '') FROM done;

-- name: pause_lane
WITH done AS (
    INSERT INTO {schema}.pauses (flow_id, run_group, paused_at, note) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
    RETURNING flow_id
)
SELECT flow_id, nextval('{schema}.changes'), pg_notify($5, '') FROM done;

-- name: unpause_lane
WITH done AS (DELETE FROM {schema}.pauses WHERE flow_id = $1 AND run_group = $2 RETURNING flow_id)
SELECT flow_id, nextval('{schema}.changes'), pg_notify($3, '') FROM done;

-- name: held
SELECT NULL, flow_id, run_group, paused_at, note FROM {schema}.pauses
UNION ALL
SELECT run_id, needs_repair, NULL, NULL, NULL FROM {schema}.runs
WHERE run_id = ANY ($1::text[]) AND left(needs_repair, 14) = 'paused: since ' AND status IN ('running', 'halted')
ORDER BY 1, 2, 3;
