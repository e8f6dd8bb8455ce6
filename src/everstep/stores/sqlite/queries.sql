-- name: put
-- Accepted only if the writer's epoch is the newest, nobody asked the run to stop, and the place is free.
-- Whether the place before it holds the base is checked apart: records never change, and reading the table
-- that is written to would make SQLite copy the row through a temporary table.
INSERT INTO checkpoints (position, checkpoint_id, keyframe, body)
SELECT ?1, ?2, ?3, ?4 FROM runs
WHERE run_key = ?5 AND epoch = ?6 AND (signal IS NULL OR ?7)
ON CONFLICT DO NOTHING;

-- name: diagnose
SELECT runs.epoch, runs.signal, here.checkpoint_id, base.checkpoint_id
FROM runs
LEFT JOIN checkpoints AS here ON here.position = ?2
LEFT JOIN checkpoints AS base ON base.position = ?2 - 1
WHERE runs.run_key = ?1;

-- name: change_status
UPDATE runs SET status = ?2, ended_at = ?3 WHERE run_key = ?1;

-- name: end_run
UPDATE runs SET status = ?2, ended_at = ?3, owner = NULL, expires_at = NULL, process = NULL, signal = NULL
WHERE run_key = ?1;

-- name: admit
INSERT INTO runs (run_id, flow_id, flow_version, flow_hash, parent_run_id, status, created_at,
                  epoch, owner, expires_at, process, claimed_sequence, forked_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT DO NOTHING;

-- name: first_put
INSERT INTO checkpoints (position, checkpoint_id, keyframe, body) VALUES (?1, ?2, ?3, ?4);

-- name: checkpoint_id
SELECT checkpoint_id FROM checkpoints WHERE position = ?1;

-- name: keep_blueprint
INSERT INTO blueprints (flow_hash, structure) VALUES (?1, ?2) ON CONFLICT DO NOTHING;

-- name: blueprint
SELECT structure FROM blueprints WHERE flow_hash = ?1;

-- name: run_key
SELECT run_key FROM runs WHERE run_id = ?1;

-- name: records
SELECT position - ?1, checkpoint_id, keyframe, body,
       position - ?1 < (SELECT trimmed_before FROM runs WHERE run_key = ?1 >> 32)
FROM checkpoints WHERE position BETWEEN ?1 + ?2 AND ?1 + ?3 ORDER BY position;

-- name: base
SELECT checkpoint_id, trimmed_before <= ?2
FROM runs LEFT JOIN checkpoints ON position = (run_key << 32) + ?2
WHERE run_id = ?1;

-- name: trimmable
SELECT run_key, trimmed_before, coalesce(keyframe AND trimmed_before <= ?2, 0),
       (SELECT min(forked_at) FROM runs WHERE parent_run_id = ?1)
FROM runs LEFT JOIN checkpoints ON position = (run_key << 32) + ?2
WHERE run_id = ?1;

-- name: trim
UPDATE checkpoints SET keyframe = 0, body = digest_of(body)
WHERE position >= (?1 << 32) + ?2 AND position < (?1 << 32) + ?3;

-- name: note_trim
UPDATE runs SET trimmed_before = ?2 WHERE run_key = ?1;

-- name: newest_keyframe
SELECT position FROM checkpoints
WHERE position BETWEEN ?1 AND ?2 AND keyframe ORDER BY position DESC LIMIT 1;

-- name: run
SELECT run_key, run_id, flow_id, flow_version, flow_hash, parent_run_id, status, created_at, ended_at,
       epoch, owner, expires_at, process, takeovers, claimed_sequence, signal, acked_at, forked_at, trimmed_before,
       (SELECT max(position) FROM checkpoints WHERE position BETWEEN run_key << 32 AND (run_key + 1 << 32) - 1)
FROM runs WHERE run_id = ?1;

-- name: runs
SELECT run_key, run_id, flow_id, flow_version, flow_hash, parent_run_id, status, created_at, ended_at,
       epoch, owner, expires_at, process, takeovers, claimed_sequence, signal, acked_at, forked_at, trimmed_before,
       (SELECT max(position) FROM checkpoints WHERE position BETWEEN run_key << 32 AND (run_key + 1 << 32) - 1)
FROM runs
WHERE (?1 IS NULL OR flow_id = ?1) AND (?2 IS NULL OR run_id = ?2) AND (?3 IS NULL OR status = ?3)
  AND (?4 IS NULL OR run_key < (SELECT run_key FROM runs WHERE run_id = ?4))
ORDER BY run_key DESC LIMIT ?5;

-- name: forks
-- Apart from the above, so that the index on the parent is used.
SELECT run_key, run_id, flow_id, flow_version, flow_hash, parent_run_id, status, created_at, ended_at,
       epoch, owner, expires_at, process, takeovers, claimed_sequence, signal, acked_at, forked_at, trimmed_before,
       (SELECT max(position) FROM checkpoints WHERE position BETWEEN run_key << 32 AND (run_key + 1 << 32) - 1)
FROM runs
WHERE parent_run_id = ?6 AND (?1 IS NULL OR flow_id = ?1) AND (?2 IS NULL OR run_id = ?2) AND (?3 IS NULL OR status = ?3)
  AND (?4 IS NULL OR run_key < (SELECT run_key FROM runs WHERE run_id = ?4))
ORDER BY run_key DESC LIMIT ?5;

-- name: claim
UPDATE runs SET epoch = ?2, owner = ?3, expires_at = ?4, process = ?5, takeovers = ?6, claimed_sequence = ?7
WHERE run_key = ?1;

-- name: renew
UPDATE runs SET expires_at = ?4 WHERE run_id = ?1 AND epoch = ?2 AND owner = ?3 AND signal IS NULL;

-- name: release
UPDATE runs SET owner = NULL, expires_at = NULL, process = NULL WHERE run_id = ?1 AND epoch = ?2;

-- name: signal
UPDATE runs SET signal = ?2 WHERE run_id = ?1 AND status IN ('running', 'halted');

-- name: ack
UPDATE runs SET acked_at = ?2 WHERE run_id = ?1 AND acked_at IS NULL;
