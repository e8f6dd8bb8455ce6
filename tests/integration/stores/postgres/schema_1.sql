-- The statements of the client that knew schema 1 only. They are not ours to change: such clients are at work.

-- name: put_step
SELECT {schema}.put_step_1($1, $2, $3, $4, $5, $6, $7, $8);

-- name: put_group
-- Whoever waits for work hears of it when the transaction is committed, if the fourth names where to tell.
SELECT {schema}.put_1($1, $2, $3, $4);

-- name: records
SELECT sequence, checkpoint_id, keyframe, body, sequence < trimmed_before
FROM {schema}.runs JOIN {schema}.checkpoints USING (run_key)
WHERE run_id = $1 AND sequence >= $2 AND ($3::bigint IS NULL OR sequence <= $3) ORDER BY sequence;

-- name: tail
SELECT sequence, checkpoint_id, keyframe, body, sequence < trimmed_before
FROM {schema}.runs JOIN {schema}.checkpoints USING (run_key)
WHERE run_id = $1 AND ($2::bigint IS NULL OR sequence <= $2)
  AND sequence >= coalesce((SELECT max(newest.sequence) FROM {schema}.checkpoints AS newest
                            WHERE newest.run_key = runs.run_key AND newest.keyframe
                              AND ($2::bigint IS NULL OR newest.sequence <= $2)), 0)
ORDER BY sequence;

-- name: trimmable
SELECT coalesce((SELECT keyframe FROM {schema}.checkpoints WHERE run_key = $1 AND sequence = $3), false),
       (SELECT min(forked_at) FROM {schema}.runs WHERE parent_run_id = $2);

-- name: lock_run
SELECT run_key, trimmed_before FROM {schema}.runs WHERE run_id = $1 FOR NO KEY UPDATE;

-- name: to_trim
SELECT sequence, body FROM {schema}.checkpoints WHERE run_key = $1 AND sequence >= $2 AND sequence < $3;

-- name: trim
UPDATE {schema}.checkpoints SET keyframe = false, body = stubs.digest
FROM unnest($2::bigint[], $3::bytea[]) AS stubs (sequence, digest)
WHERE checkpoints.run_key = $1 AND checkpoints.sequence = stubs.sequence;

-- name: note_trim
UPDATE {schema}.runs SET trimmed_before = $2 WHERE run_key = $1;

-- name: run
SELECT run_key, run_id, runs.flow_id, flow_version, flow_hash, parent_run_id, runs.status, created_at, ended_at, epoch, owner,
       expires_at, process, takeovers, claimed_sequence, signal, acked_at, forked_at, trimmed_before, adopted_at,
       (SELECT max(sequence) FROM {schema}.checkpoints WHERE checkpoints.run_key = runs.run_key) FROM {schema}.runs WHERE run_id = $1;

-- name: run_now
SELECT run_key, run_id, runs.flow_id, flow_version, flow_hash, parent_run_id, runs.status, created_at, ended_at, epoch, owner,
       expires_at, process, takeovers, claimed_sequence, signal, acked_at, forked_at, trimmed_before, adopted_at,
       (SELECT max(sequence) FROM {schema}.checkpoints WHERE checkpoints.run_key = runs.run_key), coalesce($2::bigint, {schema}.now_1()) FROM {schema}.runs WHERE run_id = $1;

-- name: runs
SELECT run_key, run_id, runs.flow_id, flow_version, flow_hash, parent_run_id, runs.status, created_at, ended_at, epoch, owner,
       expires_at, process, takeovers, claimed_sequence, signal, acked_at, forked_at, trimmed_before, adopted_at,
       (SELECT max(sequence) FROM {schema}.checkpoints WHERE checkpoints.run_key = runs.run_key) FROM {schema}.runs
WHERE ($1::text IS NULL OR flow_id = $1) AND ($2::text IS NULL OR run_id = $2) AND ($3::text IS NULL OR status = $3)
  AND ($4::text IS NULL OR run_key < (SELECT run_key FROM {schema}.runs WHERE run_id = $4))
  AND ($6::text IS NULL OR parent_run_id = $6)
ORDER BY run_key DESC LIMIT $5;

-- name: claim
-- Only if the lease is still the one that was judged.
WITH done AS (
    UPDATE {schema}.runs
    SET epoch = $2, owner = $3, expires_at = $4, process = $5, takeovers = $6, claimed_sequence = $7
    WHERE run_key = $1 AND epoch = $8 AND owner IS NOT DISTINCT FROM $9 AND expires_at IS NOT DISTINCT FROM $10
    RETURNING run_key
)
SELECT run_key, nextval('{schema}.changes') FROM done;

-- name: claim_many
WITH done AS (
    UPDATE {schema}.runs
    SET epoch = claims.epoch, owner = claims.owner, expires_at = claims.expires_at, process = $6,
        takeovers = claims.takeovers, claimed_sequence = claims.claimed_sequence
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::integer[], $7::bigint[])
         AS claims (run_key, epoch, owner, expires_at, takeovers, claimed_sequence)
    WHERE runs.run_key = claims.run_key
    RETURNING runs.run_key
)
SELECT nextval('{schema}.changes'), count(*) FROM done;

-- name: renew
UPDATE {schema}.runs SET expires_at = coalesce($5::bigint, {schema}.now_1()) + $4
WHERE run_id = $1 AND epoch = $2 AND owner = $3 AND signal IS NULL RETURNING expires_at;

-- name: release
WITH done AS (
    UPDATE {schema}.runs SET owner = NULL, expires_at = NULL, process = NULL
    WHERE run_id = $1 AND epoch = $2 RETURNING run_key
)
SELECT run_key, nextval('{schema}.changes'), pg_notify($3, '') FROM done;

-- name: signal
WITH done AS (
    UPDATE {schema}.runs SET signal = $2
    WHERE run_id = $1 AND status IN ('running', 'halted') RETURNING run_key
)
SELECT run_key, nextval('{schema}.changes'), pg_notify($3, '') FROM done;

-- name: ack
UPDATE {schema}.runs SET acked_at = coalesce($2::bigint, {schema}.now_1()) WHERE run_id = $1 AND acked_at IS NULL;

-- name: blueprint
SELECT structure FROM {schema}.blueprints WHERE flow_hash = $1;

-- name: keep_blueprint
INSERT INTO {schema}.blueprints (flow_hash, structure) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: older_structures
-- Running runs lie in an index, and halted ones have a wait that is not closed; no other run is looked at.
SELECT flow_hash FROM {schema}.blueprints
WHERE number < (SELECT number FROM {schema}.blueprints WHERE flow_hash = $2)
  AND flow_hash IN (
    SELECT flow_hash FROM {schema}.runs WHERE status = 'running' AND flow_id = $1
    UNION
    SELECT flow_hash FROM {schema}.runs WHERE status = 'halted' AND flow_id = $1)
ORDER BY number;

-- name: runs_by_status
SELECT status, count(*) FROM {schema}.runs GROUP BY status;

-- name: open_waits_by_kind
SELECT kind, count(*) FROM {schema}.waits WHERE status = 'open' GROUP BY kind;

-- name: run_at
SELECT run_id FROM {schema}.runs
WHERE status NOT IN ('completed', 'cancelled') AND $1 = (
    SELECT checkpoint_id FROM {schema}.checkpoints
    WHERE checkpoints.run_key = runs.run_key ORDER BY sequence DESC LIMIT 1)
LIMIT 1;

-- name: wait
SELECT run_id, wait_id, waits.flow_id, path, visit, kind, opened_at, details, due_at, scheduler, schedule_id, notifies,
       notified_at, token_hash, token_expires_at, generation, single_use, waits.status, settled_at, settled_by, answer FROM {schema}.waits JOIN {schema}.runs USING (run_key) WHERE wait_id = $1;

-- name: wait_of_token
SELECT run_id, wait_id, waits.flow_id, path, visit, kind, opened_at, details, due_at, scheduler, schedule_id, notifies,
       notified_at, token_hash, token_expires_at, generation, single_use, waits.status, settled_at, settled_by, answer FROM {schema}.waits JOIN {schema}.runs USING (run_key) WHERE token_hash = $1;

-- name: waits
SELECT run_id, wait_id, waits.flow_id, path, visit, kind, opened_at, details, due_at, scheduler, schedule_id, notifies,
       notified_at, token_hash, token_expires_at, generation, single_use, waits.status, settled_at, settled_by, answer FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE ($1::text IS NULL OR run_id = $1) AND ($2::text IS NULL OR waits.flow_id = $2)
  AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR waits.status = $4)
  AND ($5::text IS NULL OR wait_key > (SELECT wait_key FROM {schema}.waits WHERE wait_id = $5))
ORDER BY wait_key LIMIT $6;

-- name: unclosed_waits
-- Apart from the above, as are the next two, so that an index is used.
SELECT run_id, wait_id, waits.flow_id, path, visit, kind, opened_at, details, due_at, scheduler, schedule_id, notifies,
       notified_at, token_hash, token_expires_at, generation, single_use, waits.status, settled_at, settled_by, answer FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE waits.status IN ('open', 'settled') AND waits.status = $4
  AND ($1::text IS NULL OR run_id = $1) AND ($2::text IS NULL OR waits.flow_id = $2)
  AND ($3::text IS NULL OR kind = $3)
  AND ($5::text IS NULL OR wait_key > (SELECT wait_key FROM {schema}.waits WHERE wait_id = $5))
ORDER BY wait_key LIMIT $6;

-- name: waits_of_run
SELECT run_id, wait_id, waits.flow_id, path, visit, kind, opened_at, details, due_at, scheduler, schedule_id, notifies,
       notified_at, token_hash, token_expires_at, generation, single_use, waits.status, settled_at, settled_by, answer FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE waits.run_key = (SELECT run_key FROM {schema}.runs WHERE run_id = $1)
  AND ($2::text IS NULL OR waits.flow_id = $2)
  AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR waits.status = $4)
  AND ($5::text IS NULL OR wait_key > (SELECT wait_key FROM {schema}.waits WHERE wait_id = $5))
ORDER BY wait_key LIMIT $6;

-- name: untold_waits
SELECT run_id, wait_id, waits.flow_id, path, visit, kind, opened_at, details, due_at, scheduler, schedule_id, notifies,
       notified_at, token_hash, token_expires_at, generation, single_use, waits.status, settled_at, settled_by, answer FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE waits.status = 'open'
  AND ((notifies AND notified_at IS NULL) OR (scheduler <> '' AND due_at IS NOT NULL AND schedule_id IS NULL))
  AND ($1::text IS NULL OR run_id = $1) AND ($2::text IS NULL OR waits.flow_id = $2)
  AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR waits.status = $4)
  AND ($5::text IS NULL OR wait_key > (SELECT wait_key FROM {schema}.waits WHERE wait_id = $5))
ORDER BY wait_key LIMIT $6;

-- name: lock_run_of_wait
-- Whether its run is halted decides whether an answer wakes somebody, so the run may not move meanwhile.
SELECT runs.run_key, runs.status FROM {schema}.runs JOIN {schema}.waits USING (run_key)
WHERE wait_id = $1 FOR NO KEY UPDATE OF runs;

-- name: settle
WITH run AS (
    SELECT runs.run_key, runs.status FROM {schema}.runs
    WHERE run_key = (SELECT run_key FROM {schema}.waits WHERE wait_id = $1) FOR NO KEY UPDATE
), done AS (
    UPDATE {schema}.waits
    SET status = 'settled', settled_at = coalesce($2::bigint, {schema}.now_1()), settled_by = $3, answer = $4,
        wake_at = {schema}.wake_1(run.status, 'settled', scheduler, due_at)
    FROM run
    WHERE wait_id = $1 AND waits.run_key = run.run_key AND waits.status = 'open'
      AND ($5::bytea IS NULL OR token_hash = $5)
    RETURNING wait_key
)
SELECT wait_key, nextval('{schema}.changes'), pg_notify($6, '') FROM done;

-- name: has_due
SELECT 1 FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE run_id = $1 AND waits.status = 'open' AND scheduler = '' AND due_at <= coalesce($2::bigint, {schema}.now_1())
LIMIT 1;

-- name: settle_due
WITH halted AS (
    SELECT runs.run_key, runs.status FROM {schema}.runs WHERE run_id = ANY ($1::text[])
    ORDER BY run_key FOR NO KEY UPDATE
)
UPDATE {schema}.waits
SET status = 'settled', settled_at = coalesce($2::bigint, {schema}.now_1()), settled_by = 'clock',
    wake_at = {schema}.wake_1(halted.status, 'settled', scheduler, due_at)
FROM halted
WHERE waits.run_key = halted.run_key AND waits.status = 'open' AND scheduler = ''
  AND due_at <= coalesce($2::bigint, {schema}.now_1())
  AND nextval('{schema}.changes') > 0;

-- name: change_wait
WITH done AS (
    UPDATE {schema}.waits
    SET token_hash = $2, token_expires_at = $3, generation = $4, single_use = $5, schedule_id = $6,
        notified_at = $7, due_at = $8, details = $9, wake_at = {schema}.wake_1($10, 'open', scheduler, $8)
    WHERE wait_id = $1 AND status = 'open' RETURNING wait_key
)
SELECT wait_key, nextval('{schema}.changes'), pg_notify($11, '') FROM done;

-- name: next_due
SELECT min(wake_at) FROM {schema}.waits WHERE wake_at > greatest($1::bigint, 0);

-- name: due
-- Runs that somebody should drive, the longest due first. Of each kind no more rows are read than it takes.
WITH wanted AS (
    SELECT * FROM unnest($2::text[], $3::text[]) AS flows (flow_id, flow_hash)
), candidates AS (
    (SELECT run_key, 0::bigint AS since FROM {schema}.runs
     WHERE signal IS NOT NULL AND status = 'halted' AND (expires_at IS NULL OR expires_at <= (SELECT coalesce($1::bigint, {schema}.now_1())))
       AND (flow_id, flow_hash) IN (TABLE wanted) AND run_id <> ALL ($4::text[])
     ORDER BY run_key LIMIT $5)
    UNION ALL
    (SELECT run_key, min(settled_at) FROM (
         SELECT waits.run_key, settled_at FROM {schema}.waits JOIN {schema}.runs USING (run_key)
         WHERE wake_at = 0 AND (expires_at IS NULL OR expires_at <= (SELECT coalesce($1::bigint, {schema}.now_1())))
           AND (runs.flow_id, flow_hash) IN (TABLE wanted) AND run_id <> ALL ($4::text[])
         ORDER BY settled_at LIMIT $6) AS settled
     GROUP BY run_key)
    UNION ALL
    (SELECT run_key, min(wake_at) FROM (
         SELECT waits.run_key, wake_at FROM {schema}.waits JOIN {schema}.runs USING (run_key)
         WHERE wake_at > 0 AND wake_at <= (SELECT coalesce($1::bigint, {schema}.now_1())) AND (expires_at IS NULL OR expires_at <= (SELECT coalesce($1::bigint, {schema}.now_1())))
           AND (runs.flow_id, flow_hash) IN (TABLE wanted) AND run_id <> ALL ($4::text[])
         ORDER BY wake_at LIMIT $6) AS due
     GROUP BY run_key)
    UNION ALL
    (SELECT run_key, expires_at FROM {schema}.runs
     WHERE status = 'running' AND expires_at <= (SELECT coalesce($1::bigint, {schema}.now_1()))
       AND (flow_id, flow_hash) IN (TABLE wanted) AND run_id <> ALL ($4::text[])
     ORDER BY expires_at LIMIT $5)
    UNION ALL
    -- When a lease was given back is not known; an old run is taken for one that has waited long.
    (SELECT run_key, created_at FROM {schema}.runs
     WHERE status = 'running' AND expires_at IS NULL
       AND (flow_id, flow_hash) IN (TABLE wanted) AND run_id <> ALL ($4::text[])
     ORDER BY run_key LIMIT $5)
)
SELECT run_key FROM candidates GROUP BY run_key ORDER BY min(since), run_key LIMIT $5;

-- name: lock_due
-- What another worker is about to take is passed over.
SELECT run_key, run_id, runs.flow_id, flow_version, flow_hash, parent_run_id, runs.status, created_at, ended_at, epoch, owner,
       expires_at, process, takeovers, claimed_sequence, signal, acked_at, forked_at, trimmed_before, adopted_at,
       (SELECT max(sequence) FROM {schema}.checkpoints WHERE checkpoints.run_key = runs.run_key), (SELECT coalesce($1::bigint, {schema}.now_1())) FROM {schema}.runs JOIN unnest($2::bigint[]) WITH ORDINALITY AS due (run_key, place) USING (run_key)
WHERE (expires_at IS NULL OR expires_at <= (SELECT coalesce($1::bigint, {schema}.now_1()))) AND status IN ('running', 'halted')
ORDER BY place LIMIT $3 FOR NO KEY UPDATE OF runs SKIP LOCKED;

-- name: put_artifact
INSERT INTO {schema}.artifacts (digest, content) VALUES ($1, $2)
ON CONFLICT (digest) DO UPDATE SET content = excluded.content
WHERE artifacts.content <> excluded.content;

-- name: artifact
SELECT content FROM {schema}.artifacts WHERE digest = $1;

-- name: written
SELECT last_value + is_called::int FROM {schema}.changes;

-- name: running_writers
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() AS s;
