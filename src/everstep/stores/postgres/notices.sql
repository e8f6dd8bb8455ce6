-- name: told
SELECT r.run_key, r.notifiers, (SELECT max(sequence) FROM {schema}.checkpoints AS c WHERE c.run_key = r.run_key)
FROM {schema}.runs AS r WHERE r.run_id = $1;

-- name: set_told
UPDATE {schema}.runs SET notifiers = $2 WHERE run_id = $1;

-- name: add_notice
INSERT INTO {schema}.notices (run_key, {notice_columns})
SELECT $1, {notice_columns} FROM json_populate_record(NULL::{schema}.notices, $2);

-- name: take_notices
WITH due AS (
    SELECT number FROM {schema}.notices
    WHERE due_at <= coalesce($1, {now}) AND notifier = ANY ($2)
    ORDER BY due_at, number LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.notices AS n SET tries = tries + 1, due_at = coalesce($1, {now}) + $4
FROM due, {schema}.runs AS r WHERE n.number = due.number AND r.run_key = n.run_key
RETURNING r.run_id, {notices};

-- name: take_notices_of_run
WITH due AS (
    SELECT o.number FROM {schema}.runs AS u JOIN {schema}.notices AS o USING (run_key)
    WHERE u.run_id = $5 AND o.due_at <= coalesce($1, {now}) AND o.notifier = ANY ($2)
    ORDER BY o.due_at, o.number LIMIT $3 FOR UPDATE OF o SKIP LOCKED
)
UPDATE {schema}.notices AS n SET tries = tries + 1, due_at = coalesce($1, {now}) + $4
FROM due, {schema}.runs AS r WHERE n.number = due.number AND r.run_key = n.run_key
RETURNING r.run_id, {notices};

-- name: notice
SELECT r.run_id, {notices} FROM {schema}.notices AS n JOIN {schema}.runs AS r USING (run_key)
WHERE n.number = $1 AND r.run_id = $2 FOR UPDATE OF n;

-- name: change_notice
UPDATE {schema}.notices AS n SET {notice_changes}
FROM json_populate_record(NULL::{schema}.notices, $2) AS new WHERE n.number = $1;

-- name: drop_notice
DELETE FROM {schema}.notices WHERE number = $1;

-- name: notices
SELECT r.run_id, {notices} FROM {schema}.notices AS n JOIN {schema}.runs AS r USING (run_key)
WHERE ($1::bigint IS NULL OR n.number < $1) ORDER BY n.number DESC LIMIT $2;

-- name: notices_pending
SELECT r.run_id, {notices} FROM {schema}.notices AS n JOIN {schema}.runs AS r USING (run_key)
WHERE ($1::bigint IS NULL OR n.number < $1) AND n.due_at IS NOT NULL ORDER BY n.number DESC LIMIT $2;

-- name: notices_dead
SELECT r.run_id, {notices} FROM {schema}.notices AS n JOIN {schema}.runs AS r USING (run_key)
WHERE ($1::bigint IS NULL OR n.number < $1) AND n.due_at IS NULL AND n.sent_at IS NULL
ORDER BY n.number DESC LIMIT $2;

-- name: notices_sent
SELECT r.run_id, {notices} FROM {schema}.notices AS n JOIN {schema}.runs AS r USING (run_key)
WHERE ($1::bigint IS NULL OR n.number < $1) AND n.due_at IS NULL AND n.sent_at IS NOT NULL
ORDER BY n.number DESC LIMIT $2;

-- name: notices_of_run
SELECT r.run_id, {notices} FROM {schema}.runs AS r JOIN {schema}.notices AS n USING (run_key)
WHERE r.run_id = $3 AND ($1::bigint IS NULL OR n.number < $1)
  AND CASE $4 WHEN 'pending' THEN n.due_at IS NOT NULL WHEN 'dead' THEN n.due_at IS NULL AND n.sent_at IS NULL
              WHEN 'sent' THEN n.due_at IS NULL AND n.sent_at IS NOT NULL ELSE TRUE END
ORDER BY n.number DESC LIMIT $2;
