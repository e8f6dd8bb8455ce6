-- name: set_told
UPDATE runs SET notifiers = ?2 WHERE run_key = ?1;

-- name: told
SELECT notifiers, (SELECT max(position) - (?1 << 32) FROM checkpoints
                   WHERE position BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295) FROM runs WHERE run_key = ?1;

-- name: told_of
SELECT notifiers FROM runs WHERE run_id = ?1;

-- name: add_notice
INSERT INTO notices (run_key, {notice_columns}) VALUES (:run_key, {notice_values});

-- name: has_due_notices
SELECT 1 FROM notices WHERE due_at <= ?1 LIMIT 1;

-- name: due_notices
SELECT run_id, {notices} FROM notices INDEXED BY notices_due JOIN runs USING (run_key)
WHERE notices.due_at <= ?1 AND notifier IN (SELECT value FROM json_each(?2)) ORDER BY notices.due_at, number LIMIT ?3;

-- name: due_notices_of_run
SELECT run_id, {notices} FROM runs CROSS JOIN notices INDEXED BY notices_by_run USING (run_key)
WHERE run_id = ?4 AND notices.due_at <= ?1 AND notifier IN (SELECT value FROM json_each(?2))
ORDER BY notices.due_at, number LIMIT ?3;

-- name: notice
SELECT run_id, {notices} FROM notices JOIN runs USING (run_key) WHERE number = ?1 AND run_id = ?2;

-- name: change_notice
UPDATE notices SET {notice_changes} WHERE number = :number;

-- name: drop_notice
DELETE FROM notices WHERE number = ?1;

-- name: notices
SELECT run_id, {notices} FROM notices JOIN runs USING (run_key)
WHERE number < coalesce(?1, 1 << 62) ORDER BY number DESC LIMIT ?2;

-- name: notices_of_run
SELECT run_id, {notices} FROM runs CROSS JOIN notices INDEXED BY notices_by_run USING (run_key)
WHERE number < coalesce(?1, 1 << 62) AND run_id = ?3
  AND CASE ?4 WHEN 'pending' THEN notices.due_at IS NOT NULL WHEN 'dead' THEN notices.due_at IS NULL AND sent_at IS NULL
              WHEN 'sent' THEN notices.due_at IS NULL AND sent_at IS NOT NULL ELSE TRUE END
ORDER BY number DESC LIMIT ?2;

-- name: notices_pending
SELECT run_id, {notices} FROM notices JOIN runs USING (run_key)
WHERE number < coalesce(?1, 1 << 62) AND notices.due_at IS NOT NULL ORDER BY number DESC LIMIT ?2;

-- name: notices_dead
SELECT run_id, {notices} FROM notices INDEXED BY notices_dead JOIN runs USING (run_key)
WHERE number < coalesce(?1, 1 << 62) AND notices.due_at IS NULL AND sent_at IS NULL ORDER BY number DESC LIMIT ?2;

-- name: notices_sent
SELECT run_id, {notices} FROM notices JOIN runs USING (run_key)
WHERE number < coalesce(?1, 1 << 62) AND notices.due_at IS NULL AND sent_at IS NOT NULL ORDER BY number DESC LIMIT ?2;
