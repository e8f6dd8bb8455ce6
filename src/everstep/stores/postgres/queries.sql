-- name: put_step
SELECT {schema}.put_step_1($1, $2, $3, $4, $5, $6, $7, $8);

-- name: put_group
-- Idle workers hear of it when the transaction is committed, if the fourth names where to tell.
SELECT {schema}.put_6($1, $2, $3, $4);

-- name: put_more
-- For commits that take signals, open or close waits for them, or say for the audit log who acts.
SELECT {schema}.put_9($1, $2, $3, $4);

-- name: restore_labels
SELECT {schema}.label_9($1, $2, $3);

-- name: restore_undoing
UPDATE {schema}.runs SET undoing = $2 WHERE run_key = $1;

-- name: set_undoing
-- In the transaction of the put that says so, which locked the run. A put that is repeated says nothing new.
UPDATE {schema}.runs SET undoing = $2, signal = NULL, signal_note = NULL
WHERE run_id = $1
  AND NOT EXISTS (SELECT FROM {schema}.checkpoints WHERE checkpoints.run_key = runs.run_key AND sequence > $3);

-- name: send
SELECT {schema}.send_9($1, $2, $3, $4, $5, $6, $7);

-- name: inbox
SELECT signal_id, name, value, sent_at, number, wait_id, taken_at FROM {schema}.inbox
WHERE run_key = (SELECT run_key FROM {schema}.runs WHERE run_id = $1) AND taken_at IS NULL
  AND ($2::text IS NULL OR name = $2) AND number > $3 ORDER BY number LIMIT $4;

-- name: taken_signals
SELECT signal_id, name, value, sent_at, number, wait_id, taken_at FROM {schema}.inbox
WHERE run_key = (SELECT run_key FROM {schema}.runs WHERE run_id = $1) AND taken_at IS NOT NULL
  AND ($2::text IS NULL OR name = $2) AND number > $3 ORDER BY number LIMIT $4;

-- name: recode_signal
UPDATE {schema}.inbox SET value = given.value
FROM unnest($2::bigint[], $3::bytea[], $4::bytea[]) AS given (number, was, value)
WHERE run_key = (SELECT run_key FROM {schema}.runs WHERE run_id = $1) AND inbox.number = given.number
  AND inbox.value = given.was AND taken_at IS NULL RETURNING inbox.number;

-- name: had_events
SELECT path, name, event_id FROM {schema}.taken_events
WHERE run_key = (SELECT run_key FROM {schema}.runs WHERE run_id = $1) ORDER BY path, name, event_id;

-- name: restore_had
INSERT INTO {schema}.taken_events (run_key, path, name, event_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- name: admit_had
INSERT INTO {schema}.taken_events (run_key, path, name, event_id)
SELECT run_key, $2, $3, $4 FROM {schema}.runs WHERE run_id = $1 ON CONFLICT DO NOTHING;

-- name: restore_signal
INSERT INTO {schema}.inbox (run_key, signal_id, name, value, sent_at, number, wait_id, taken_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: restore_inbox_size
SELECT {schema}.resize_9($1, $2);

-- name: lock_event
-- Taken alone: an opener of a wait for this event has committed, or sees the event.
SELECT pg_advisory_xact_lock($1, hashtext($2));

-- name: drop_events
WITH gone AS (
    DELETE FROM {schema}.events WHERE event_key = ANY (ARRAY(
        SELECT event_key FROM {schema}.events WHERE expires_at <= {now} LIMIT 100 FOR UPDATE SKIP LOCKED))
        OR (name = $2 AND event_id = $3 AND expires_at <= {now})
    RETURNING event_key
)
DELETE FROM {schema}.event_fields USING gone WHERE event_fields.event_key = gone.event_key;

-- name: keep_event
WITH kept AS (
    INSERT INTO {schema}.events (event_id, name, value, published_at, expires_at)
    SELECT $2, $3, $4, now, now + $5 FROM (SELECT {now} AS now) AS clock
    ON CONFLICT DO NOTHING RETURNING event_key
)
INSERT INTO {schema}.event_fields (name, field, hash, event_key)
SELECT $3, field, hash, event_key FROM kept, unnest($6::text[], $7::text[]) AS given (field, hash);

-- name: next_topic
SELECT min(topic) FROM {schema}.waits WHERE topic IS NOT NULL AND status = 'open' AND topic > $1;

-- name: settle_event
SELECT {schema}.settle_event_9($1::text[], $2, $3, $4, $5, $6, $7);

-- name: records
-- These and `tails` come in any order, as what is joined last decides it; the client sorts.
SELECT asked.place, sequence, checkpoint_id, keyframe, body, sequence < trimmed_before
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS asked (run_id, first, last, place)
JOIN {schema}.runs USING (run_id), LATERAL (
    SELECT * FROM {schema}.checkpoints AS c
    WHERE c.run_key = runs.run_key AND c.sequence >= asked.first AND c.sequence <= asked.last OFFSET 0) AS own;

-- name: tail
SELECT sequence, checkpoint_id, keyframe, body, sequence < trimmed_before
FROM {schema}.runs JOIN {schema}.checkpoints USING (run_key)
WHERE run_id = $1 AND ($2::bigint IS NULL OR sequence <= $2)
  AND sequence >= coalesce((SELECT max(newest.sequence) FROM {schema}.checkpoints AS newest
                            WHERE newest.run_key = runs.run_key AND newest.keyframe
                              AND ($2::bigint IS NULL OR newest.sequence <= $2)), 0)
ORDER BY sequence;

-- name: tails
SELECT asked.run_id, sequence, checkpoint_id, keyframe, body, sequence < trimmed_before
FROM unnest($1::text[]) AS asked (run_id)
JOIN {schema}.runs USING (run_id), LATERAL (
    SELECT * FROM {schema}.checkpoints AS c
    WHERE c.run_key = runs.run_key
      AND c.sequence >= coalesce((SELECT max(newest.sequence) FROM {schema}.checkpoints AS newest
                                  WHERE newest.run_key = runs.run_key AND newest.keyframe), 0)
    OFFSET 0) AS own;

-- name: trimmable
SELECT coalesce((SELECT keyframe FROM {schema}.checkpoints WHERE run_key = $1 AND sequence = $3), false),
       (SELECT min(forked_at) FROM {schema}.runs WHERE parent_run_id = $2);

-- name: lock_run
SELECT run_key, trimmed_before, pinned FROM {schema}.runs WHERE run_id = $1 FOR NO KEY UPDATE;

-- name: to_trim
SELECT sequence, body FROM {schema}.checkpoints WHERE run_key = $1 AND sequence >= $2 AND sequence < $3;

-- name: trim
UPDATE {schema}.checkpoints SET keyframe = false, body = stubs.digest
FROM unnest($2::bigint[], $3::bytea[]) AS stubs (sequence, digest)
WHERE checkpoints.run_key = $1 AND checkpoints.sequence = stubs.sequence;

-- name: to_recode
SELECT body FROM {schema}.checkpoints WHERE run_key = $1 AND sequence = $2 AND checkpoint_id = $3;

-- name: recode
UPDATE {schema}.checkpoints SET body = $3 WHERE run_key = $1 AND sequence = $2;

-- name: recode_wait
UPDATE {schema}.waits SET details = $4, answer = $5
WHERE wait_id = $1 AND details = $2 AND answer IS NOT DISTINCT FROM $3;

-- name: restore_run
-- Waits for a client that restores or admits a run of this id at the same time.
INSERT INTO {schema}.runs OVERRIDING USER VALUE
SELECT * FROM json_populate_record(NULL::{schema}.runs, $1::text::json)
ON CONFLICT (run_id) DO NOTHING RETURNING run_key;

-- name: restart_epochs
UPDATE {schema}.runs SET epoch = run_key * $2 WHERE run_key = $1;

-- name: restore_records
INSERT INTO {schema}.checkpoints (run_key, sequence, checkpoint_id, keyframe, body)
SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::boolean[], $5::bytea[]);

-- name: restore_waits
SELECT {schema}.open_5($1, NULL, $2::text::json);

-- name: taken_waits
SELECT wait_id, token_hash FROM {schema}.waits WHERE wait_id = ANY ($1) OR token_hash = ANY ($2) LIMIT 1;

-- name: note_change
SELECT nextval('{schema}.changes'), pg_notify($1, '');

-- name: id_at
SELECT checkpoint_id FROM {schema}.checkpoints WHERE run_key = $1 AND sequence = $2;

-- name: note_trim
UPDATE {schema}.runs SET trimmed_before = $2 WHERE run_key = $1;

-- name: run
SELECT {run} FROM {schema}.runs WHERE run_id = $1;

-- name: run_now
SELECT {run}, coalesce($2::bigint, {schema}.now_1()) FROM {schema}.runs WHERE run_id = $1;

-- name: due_holders
SELECT {run}, coalesce($2::bigint, {schema}.now_1()) FROM {schema}.runs
WHERE run_id = ANY ($1::text[]) AND status = 'running' AND expires_at IS NULL AND needs_repair IS NULL;

-- name: runs
SELECT {run} FROM {schema}.runs
WHERE ($1::text IS NULL OR flow_id = $1) AND ($2::text IS NULL OR run_id = $2) AND ($3::text IS NULL OR status = $3)
  AND ($4::text IS NULL OR run_key < coalesce((SELECT run_key FROM {schema}.runs WHERE run_id = $4),
                                              (SELECT run_key FROM {schema}.tombstones WHERE run_id = $4)))
  AND ($6::text IS NULL OR parent_run_id = $6) AND (NOT $8 OR pinned IS NOT NULL)
  AND CASE $7::int WHEN 0 THEN TRUE WHEN 1 THEN needs_repair IS NOT NULL AND NOT left(needs_repair, 14) = 'paused: since '
      ELSE left(needs_repair, 14) = 'paused: since ' AND status IN ('running', 'halted') END
ORDER BY run_key DESC LIMIT $5;

-- name: started_runs
-- As above, of the runs that nodes of the ninth started. Said like this only their index can sort them.
SELECT {run} FROM {schema}.runs
WHERE started_by IS NOT NULL AND split_part(started_by, ' ', 1) >= $9
  AND (split_part(started_by, ' ', 1), run_key) < ($9, CASE WHEN $4::text IS NULL THEN 1::bigint << 62 ELSE coalesce(
      (SELECT run_key FROM {schema}.runs WHERE run_id = $4),
      (SELECT run_key FROM {schema}.tombstones WHERE run_id = $4)) END)
  AND ($1::text IS NULL OR flow_id = $1) AND ($2::text IS NULL OR run_id = $2) AND ($3::text IS NULL OR status = $3)
  AND ($6::text IS NULL OR parent_run_id = $6) AND (NOT $8 OR pinned IS NOT NULL)
  AND CASE $7::int WHEN 0 THEN TRUE WHEN 1 THEN needs_repair IS NOT NULL AND NOT left(needs_repair, 14) = 'paused: since '
      ELSE left(needs_repair, 14) = 'paused: since ' AND status IN ('running', 'halted') END
ORDER BY split_part(started_by, ' ', 1) DESC, run_key DESC LIMIT $5;

-- name: claim
-- Only if the lease is still the one that was judged. A run that is paused stays so.
WITH done AS (
    UPDATE {schema}.runs
    SET epoch = $2, owner = $3, expires_at = $4, process = $5, takeovers = $6, claimed_sequence = $7,
        needs_repair = CASE WHEN left(needs_repair, 14) = 'paused: since ' AND status IN ('running', 'halted') THEN needs_repair END
    WHERE run_key = $1 AND epoch = $8 AND owner IS NOT DISTINCT FROM $9 AND expires_at IS NOT DISTINCT FROM $10
    RETURNING run_key
)
SELECT run_key, nextval('{schema}.changes') FROM done;

-- name: renew
-- Locked in the order in which groups of commits are: two that write to several runs could wait for each other.
WITH mine AS (
    SELECT runs.run_key FROM unnest($1::text[], $2::bigint[], $3::text[]) AS held (run_id, epoch, owner)
    JOIN {schema}.runs ON runs.run_id = held.run_id AND runs.epoch = held.epoch AND runs.owner = held.owner
    WHERE signal IS NULL ORDER BY runs.run_key FOR NO KEY UPDATE OF runs
)
UPDATE {schema}.runs SET expires_at = coalesce($5::bigint, {schema}.now_1()) + $4
FROM mine WHERE runs.run_key = mine.run_key RETURNING run_id, epoch, expires_at;

-- name: still_held
SELECT run_id, epoch FROM unnest($1::text[], $2::bigint[]) AS held (run_id, epoch) JOIN {schema}.runs USING (run_id, epoch)
WHERE owner IS NOT NULL;

-- name: release
WITH done AS (
    UPDATE {schema}.runs SET owner = NULL, expires_at = NULL, process = NULL
    WHERE run_id = $1 AND epoch = $2 RETURNING run_key
)
SELECT run_key, nextval('{schema}.changes'), pg_notify($3, '') FROM done;

-- name: request_stop
-- The columns have the names by which earlier releases know them. A run that is paused is so no longer: workers end it.
WITH done AS (
    UPDATE {schema}.runs SET signal = $2, signal_note = $4::bytea,
        needs_repair = CASE WHEN NOT left(needs_repair, 14) = 'paused: since ' THEN needs_repair END
    WHERE run_id = $1 AND status IN ('running', 'halted') RETURNING run_key
)
SELECT run_key, nextval('{schema}.changes'), pg_notify($3, '') FROM done;

-- name: stop_note
SELECT signal_note FROM {schema}.runs WHERE run_id = $1 AND signal IS NOT NULL;

-- name: ack
UPDATE {schema}.runs SET acked_at = coalesce($2::bigint, {schema}.now_1()) WHERE run_id = $1 AND acked_at IS NULL;

-- name: blueprints
SELECT flow_hash, structure FROM {schema}.blueprints WHERE flow_hash = ANY ($1::text[]);

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

-- name: sums
SELECT what, name, many FROM {schema}.sums_7();

-- name: run_at
SELECT run_id FROM {schema}.runs
WHERE status NOT IN ('completed', 'cancelled') AND $1 = (
    SELECT checkpoint_id FROM {schema}.checkpoints
    WHERE checkpoints.run_key = runs.run_key ORDER BY sequence DESC LIMIT 1)
LIMIT 1;

-- name: wait
SELECT {wait} FROM {schema}.waits JOIN {schema}.runs USING (run_key) WHERE wait_id = $1;

-- name: wait_of_token
SELECT {wait} FROM {schema}.waits JOIN {schema}.runs USING (run_key) WHERE token_hash = $1;

-- name: waits
SELECT {wait} FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE ($1::text IS NULL OR run_id = $1) AND ($2::text IS NULL OR waits.flow_id = $2)
  AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR waits.status = $4)
  AND ($5::text IS NULL OR wait_key > (SELECT wait_key FROM {schema}.waits WHERE wait_id = $5))
ORDER BY wait_key LIMIT $6;

-- name: unclosed_waits
-- Apart from the above, as are the next two, so that an index is used.
SELECT {wait} FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE waits.status IN ('open', 'settled') AND waits.status = $4
  AND ($1::text IS NULL OR run_id = $1) AND ($2::text IS NULL OR waits.flow_id = $2)
  AND ($3::text IS NULL OR kind = $3)
  AND ($5::text IS NULL OR wait_key > (SELECT wait_key FROM {schema}.waits WHERE wait_id = $5))
ORDER BY wait_key LIMIT $6;

-- name: waits_of_run
SELECT {wait} FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE waits.run_key = (SELECT run_key FROM {schema}.runs WHERE run_id = $1)
  AND ($2::text IS NULL OR waits.flow_id = $2)
  AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR waits.status = $4)
  AND ($5::text IS NULL OR wait_key > (SELECT wait_key FROM {schema}.waits WHERE wait_id = $5))
ORDER BY wait_key LIMIT $6;

-- name: unclosed_waits_of_run
SELECT {wait} FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE waits.run_key = (SELECT run_key FROM {schema}.runs WHERE run_id = $1)
  AND waits.status IN ('open', 'settled') AND ($2::text IS NULL OR waits.flow_id = $2)
  AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR waits.status = $4)
  AND ($5::text IS NULL OR wait_key > (SELECT wait_key FROM {schema}.waits WHERE wait_id = $5))
ORDER BY wait_key LIMIT $6;

-- name: untold_waits
SELECT {wait} FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE waits.status = 'open'
  AND ((notifies AND notified_at IS NULL) OR (scheduler <> '' AND due_at IS NOT NULL AND schedule_id IS NULL))
  AND ($1::text IS NULL OR run_id = $1) AND ($2::text IS NULL OR waits.flow_id = $2)
  AND ($3::text IS NULL OR kind = $3) AND ($4::text IS NULL OR waits.status = $4)
  AND ($5::text IS NULL OR wait_key > (SELECT wait_key FROM {schema}.waits WHERE wait_id = $5))
ORDER BY wait_key LIMIT $6;

-- name: lock_run_of_wait
-- Whether its run is halted decides whether an answer wakes a worker, so the run may not move meanwhile.
SELECT runs.run_key, runs.status FROM {schema}.runs JOIN {schema}.waits USING (run_key)
WHERE wait_id = $1 FOR NO KEY UPDATE OF runs;

-- name: settle
-- As engine.settling says, by the time at which the run was locked.
WITH run AS (
    SELECT runs.run_key, runs.status FROM {schema}.runs
    WHERE run_key = (SELECT run_key FROM {schema}.waits WHERE wait_id = $1) FOR NO KEY UPDATE
), at AS MATERIALIZED (
    SELECT run_key, status, coalesce($2::bigint, {schema}.now_1()) AS now FROM run
), done AS (
    UPDATE {schema}.waits
    SET status = 'settled', settled_at = at.now,
        settled_by = CASE WHEN due_at <= at.now THEN 'clock' ELSE $3 END,
        answer = CASE WHEN due_at <= at.now THEN NULL ELSE $4::bytea END,
        details = CASE WHEN due_at <= at.now THEN details ELSE coalesce($7::bytea, details) END,
        wake_at = {schema}.wake_1(at.status, 'settled', scheduler, due_at)
    FROM at
    WHERE wait_id = $1 AND waits.run_key = at.run_key AND waits.status = 'open'
      AND ($5::bytea IS NULL OR token_hash = $5)
    RETURNING settled_by
)
SELECT settled_by, nextval('{schema}.changes'), pg_notify($6, '') FROM done;

-- name: has_due
SELECT 1 FROM {schema}.waits JOIN {schema}.runs USING (run_key)
WHERE run_id = $1 AND waits.status = 'open' AND scheduler = '' AND due_at <= coalesce($2::bigint, {schema}.now_1())
LIMIT 1;

-- name: settle_due
WITH halted AS (
    SELECT runs.run_key, runs.status FROM {schema}.runs WHERE run_id = $1 FOR NO KEY UPDATE
)
UPDATE {schema}.waits
SET status = 'settled', settled_at = coalesce($2::bigint, {schema}.now_1()), settled_by = 'clock',
    wake_at = {schema}.wake_1(halted.status, 'settled', scheduler, due_at)
FROM halted
WHERE waits.run_key = halted.run_key AND waits.status = 'open' AND scheduler = ''
  AND due_at <= coalesce($2::bigint, {schema}.now_1())
  AND nextval('{schema}.changes') > 0
RETURNING wait_key;

-- name: change_wait
WITH done AS (
    UPDATE {schema}.waits
    SET token_hash = $2, token_expires_at = $3, generation = $4, single_use = $5, schedule_id = $6,
        notified_at = $7, due_at = $8, details = $9, wake_at = {schema}.wake_1($10, 'open', scheduler, $8)
    WHERE wait_id = $1 AND status = 'open' RETURNING wait_key
)
SELECT wait_key, nextval('{schema}.changes'), pg_notify($11, '') FROM done;

-- name: now
SELECT {schema}.now_1();

-- name: backlog
-- Each of the three indexes is walked from version to version of a flow; of each no more runs are looked at than so
-- many, the longest due first. Runs that are to stop are met as those that others are, or by who asked for it.
WITH RECURSIVE at (time) AS MATERIALIZED (SELECT coalesce($1::bigint, {schema}.now_1())),
ready (flow_id, flow_hash) AS (
    (SELECT flow_id, flow_hash FROM {schema}.runs
     WHERE status = 'running' AND expires_at IS NULL AND needs_repair IS NULL ORDER BY flow_id, flow_hash LIMIT 1)
    UNION ALL
    SELECT next.* FROM ready, LATERAL (
        SELECT r.flow_id, r.flow_hash FROM {schema}.runs AS r
        WHERE r.status = 'running' AND r.expires_at IS NULL AND r.needs_repair IS NULL
          AND (r.flow_id, r.flow_hash) > (ready.flow_id, ready.flow_hash)
        ORDER BY r.flow_id, r.flow_hash LIMIT 1) AS next
),
leased (flow_id, flow_hash) AS (
    (SELECT flow_id, flow_hash FROM {schema}.runs WHERE expires_at IS NOT NULL ORDER BY flow_id, flow_hash LIMIT 1)
    UNION ALL
    SELECT next.* FROM leased, LATERAL (
        SELECT r.flow_id, r.flow_hash FROM {schema}.runs AS r
        WHERE r.expires_at IS NOT NULL AND (r.flow_id, r.flow_hash) > (leased.flow_id, leased.flow_hash)
        ORDER BY r.flow_id, r.flow_hash LIMIT 1) AS next
),
waking (flow_id, lane_hash) AS (
    (SELECT flow_id, lane_hash FROM {schema}.waits WHERE wake_at IS NOT NULL ORDER BY flow_id, lane_hash LIMIT 1)
    UNION ALL
    SELECT next.* FROM waking, LATERAL (
        SELECT w.flow_id, w.lane_hash FROM {schema}.waits AS w
        WHERE w.wake_at IS NOT NULL AND (w.flow_id, w.lane_hash) > (waking.flow_id, waking.lane_hash)
        ORDER BY w.flow_id, w.lane_hash LIMIT 1) AS next
),
due (flow_id, flow_hash, run_key, since) AS (
    SELECT f.flow_id, f.flow_hash, one.* FROM ready AS f, LATERAL (
        SELECT r.run_key, r.created_at FROM {schema}.runs AS r
        WHERE r.status = 'running' AND r.expires_at IS NULL AND r.needs_repair IS NULL
          AND r.flow_id = f.flow_id AND r.flow_hash = f.flow_hash
        ORDER BY r.run_key LIMIT $2) AS one
    UNION ALL
    SELECT f.flow_id, f.flow_hash, one.* FROM leased AS f, LATERAL (
        SELECT r.run_key, r.expires_at FROM {schema}.runs AS r
        WHERE r.expires_at IS NOT NULL AND r.expires_at <= (SELECT time FROM at)
          AND r.flow_id = f.flow_id AND r.flow_hash = f.flow_hash
          AND r.status = 'running' AND r.needs_repair IS NULL
        ORDER BY r.expires_at LIMIT $2) AS one
    UNION ALL
    SELECT f.flow_id, f.lane_hash, one.* FROM waking AS f, LATERAL (
        SELECT w.run_key, CASE WHEN w.wake_at = 0 THEN w.settled_at ELSE w.wake_at END
        FROM {schema}.waits AS w
        JOIN {schema}.runs AS r ON r.run_key = w.run_key
        WHERE w.wake_at IS NOT NULL AND w.wake_at <= (SELECT time FROM at)
          AND w.flow_id = f.flow_id AND w.lane_hash = f.lane_hash
          AND r.needs_repair IS NULL AND (r.expires_at IS NULL OR r.expires_at <= (SELECT time FROM at))
        ORDER BY w.wake_at LIMIT $2) AS one
)
SELECT flow_id, flow_hash, count(DISTINCT run_key), min(since) FROM due GROUP BY flow_id, flow_hash;

-- name: next_due
SELECT min(wake_at) FROM {schema}.waits WHERE wake_at > greatest($1::bigint, 0);

-- name: due
SELECT * FROM {schema}.due_8($1, $2::text[], $3::text[], $4::text[], $5, $6::text[], $7::jsonb);

-- name: claim_due
SELECT {columns}, claimed_sequence
FROM {schema}.claim_8($1, $2::bigint[], $3::bigint[], $4::text[], $5::integer[], $6::text[], $7::text[], $8, $9) AS runs
ORDER BY array_position($2, run_key);

-- name: live_leases
SELECT flow_id, run_group, count(*) FROM {schema}.runs
WHERE expires_at > {now} AND flow_id = ANY ($2::text[]) GROUP BY flow_id, run_group;

-- name: lock_quota
-- Who claims runs of a flow with a quota does so alone.
SELECT pg_advisory_xact_lock($1, hashtext(name)) FROM unnest($2::text[]) AS name;

-- name: limit_now
SELECT coalesce($1::bigint, {schema}.now_1());

-- name: under_way
SELECT run_id FROM {schema}.runs
WHERE run_id = ANY ($1::text[]) AND epoch > 0 AND status IN ('running', 'halted');

-- name: limit_states
SELECT limit_key, state FROM {schema}.limit_states WHERE limit_key = ANY ($1::text[]);

-- name: limit_states_from
SELECT limit_key, state FROM {schema}.limit_states
WHERE limit_key >= $1 AND limit_key < $1 || U&'\+10FFFF' AND limit_key > $3 ORDER BY limit_key LIMIT $2;

-- name: keep_limit_states
INSERT INTO {schema}.limit_states (limit_key, state)
SELECT limit_key, state FROM unnest($1::text[], $2::bytea[]) AS new (limit_key, state) WHERE state IS NOT NULL
ON CONFLICT (limit_key) DO UPDATE SET state = excluded.state;

-- name: drop_limit_states
DELETE FROM {schema}.limit_states WHERE limit_key = ANY ($1::text[]);

-- name: leased
SELECT {run} FROM {schema}.runs WHERE expires_at > {now} AND ($2::text[] IS NULL OR owner = ANY ($2));

-- name: fence
WITH done AS (
    UPDATE {schema}.runs SET epoch = epoch + $2, owner = NULL, expires_at = NULL, process = NULL
    WHERE run_id = $1 AND status NOT IN ('completed', 'cancelled') RETURNING run_key
)
SELECT run_key, nextval('{schema}.changes') FROM done;

-- name: has_record
SELECT 1 FROM {schema}.runs JOIN {schema}.checkpoints USING (run_key)
WHERE run_id = $1 AND sequence = $2 AND checkpoint_id = $3;

-- name: set_aside
WITH done AS (
    UPDATE {schema}.runs SET needs_repair = $3, owner = NULL, expires_at = NULL, process = NULL
    WHERE run_id = $1 AND epoch = $2 AND status IN ('running', 'halted') RETURNING run_key
)
SELECT run_key, nextval('{schema}.changes') FROM done;

-- name: forget_workers
-- Apart from the next, which waits for the client that deregisters that worker: together they could wait for each other.
DELETE FROM {schema}.workers WHERE expires_at <= {now} AND worker_id <> $2;

-- name: report
INSERT INTO {schema}.workers (worker_id, started_at, seen_at, expires_at, details)
SELECT $2, $3, now, now + $4, $5 FROM (SELECT {now} AS now) AS clock
ON CONFLICT (worker_id) DO UPDATE
SET started_at = excluded.started_at, seen_at = excluded.seen_at, expires_at = excluded.expires_at,
    details = excluded.details;

-- name: leave
DELETE FROM {schema}.workers WHERE worker_id = $1;

-- name: workers
SELECT details, seen_at FROM {schema}.workers WHERE expires_at > {now} ORDER BY started_at, worker_id;

-- name: put_artifact
-- The same bytes are not written again, only touched.
INSERT INTO {schema}.artifacts (digest, content, touched_at) VALUES ($1, $2, coalesce($3::bigint, {schema}.now_1()))
ON CONFLICT (digest) DO UPDATE
SET touched_at = excluded.touched_at,
    content = CASE WHEN artifacts.content = excluded.content THEN artifacts.content ELSE excluded.content END;

-- name: artifacts
SELECT digest, octet_length(content), {now} - touched_at FROM {schema}.artifacts
WHERE digest > $2 ORDER BY digest LIMIT $3;

-- name: delete_artifacts
DELETE FROM {schema}.artifacts WHERE digest = ANY ($2::text[]) AND touched_at <= {now} - $3::bigint RETURNING digest;

-- name: artifact
SELECT content FROM {schema}.artifacts WHERE digest = $1;

-- name: artifact_piece
SELECT substring(content FROM $2::int FOR $3::int) FROM {schema}.artifacts WHERE digest = $1;

-- name: written
SELECT last_value + is_called::int FROM {schema}.changes;

-- name: running_writers
-- A snapshot would not do: it knows nothing of transactions that are younger than the last one that ended.
SELECT transactionid::text FROM pg_locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted;

-- name: health
SELECT current_setting('server_version'), {schema}.now_1(),
       pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on', current_setting('fsync'),
       current_setting('synchronous_commit'), (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       current_setting('max_connections')::integer;

-- name: probe
-- As durable as a put; the row is taken away again.
WITH written AS (
    INSERT INTO {schema}.workers (worker_id, started_at, seen_at, expires_at, details)
    VALUES ('everstep doctor', 0, 0, 0, '') ON CONFLICT (worker_id) DO UPDATE SET seen_at = 0 RETURNING worker_id
)
SELECT count(*) FROM written;

-- name: lock_to_erase
SELECT run_key FROM {schema}.runs WHERE run_id = ANY ($1::text[]) ORDER BY run_key FOR UPDATE;

-- name: to_erase
SELECT {run}, EXISTS (SELECT FROM {schema}.runs AS fork WHERE fork.parent_run_id = runs.run_id), {now}
FROM {schema}.runs WHERE run_id = ANY ($2::text[]);

-- name: forked
SELECT DISTINCT parent_run_id FROM {schema}.runs WHERE parent_run_id = ANY ($1::text[]);

-- name: bury
INSERT INTO {schema}.tombstones (run_key, run_id, flow_id, created_at, erased_at, reason, summary)
SELECT runs.run_key, run_id, flow_id, created_at, gone.at, gone.reason, gone.summary
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[]) AS gone (run_key, at, reason, summary)
JOIN {schema}.runs USING (run_key) ORDER BY run_key;

-- name: erase_waits
DELETE FROM {schema}.waits WHERE run_key = ANY ($1::bigint[]);

-- name: erase_records
DELETE FROM {schema}.checkpoints WHERE run_key = ANY ($1::bigint[]);

-- name: erase_runs
WITH gone AS (DELETE FROM {schema}.runs WHERE run_key = ANY ($1::bigint[]) RETURNING run_key)
SELECT nextval('{schema}.changes'), count(*) FROM gone;

-- name: tombstone
SELECT {tombstone} FROM {schema}.tombstones WHERE run_id = $1;

-- name: tombstones
SELECT {tombstone} FROM {schema}.tombstones
WHERE ($1::text IS NULL OR flow_id = $1)
  AND ($2::text IS NULL OR number < (SELECT number FROM {schema}.tombstones WHERE run_id = $2))
ORDER BY number DESC LIMIT $3;

-- name: forget
DELETE FROM {schema}.tombstones WHERE run_id = ANY ($1::text[]) RETURNING run_id;

-- name: pin
UPDATE {schema}.runs SET pinned = $2 WHERE run_id = $1 AND nextval('{schema}.changes') > 0 RETURNING run_key;

-- name: note_removal
INSERT INTO {schema}.removals (details) VALUES ($1);

-- name: removals
SELECT number, details FROM {schema}.removals
WHERE $1::bigint IS NULL OR number < $1 ORDER BY number DESC LIMIT $2;

-- name: live_append
WITH written AS (
    INSERT INTO {schema}.live (run_id, epoch, last, count, at, body)
    SELECT given.run_id, given.epoch, given.last, given.count, coalesce($6::bigint, {schema}.now_1()), given.body
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])
        AS given (run_id, epoch, last, count, body)
    ON CONFLICT DO NOTHING)
SELECT pg_notify($7::text, '');

-- name: live_read
SELECT batch.run_id, batch.epoch, batch.last, batch.count, batch.body
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS wanted (run_id, epoch, last), LATERAL (
    SELECT l.* FROM {schema}.live AS l
    WHERE l.run_id = wanted.run_id AND (l.epoch, l.last) > (wanted.epoch, wanted.last)
    ORDER BY l.epoch, l.last LIMIT $4::bigint) AS batch
ORDER BY batch.run_id, batch.epoch, batch.last;

-- name: live_trim
DELETE FROM {schema}.live USING (
    SELECT kept.run_id, kept.epoch, kept.last FROM unnest($1::text[]) AS wanted (run_id), LATERAL (
        SELECT l.run_id, l.epoch, l.last FROM {schema}.live AS l WHERE l.run_id = wanted.run_id
        ORDER BY l.epoch DESC, l.last DESC LIMIT 1 OFFSET $2::bigint) AS kept) AS bound
WHERE live.run_id = bound.run_id AND (live.epoch, live.last) <= (bound.epoch, bound.last);

-- name: live_expire
DELETE FROM {schema}.live WHERE at < coalesce($1::bigint, {schema}.now_1()) - $2::bigint;

-- name: live_recode
UPDATE {schema}.live AS l SET body = given.body
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[])
    AS given (run_id, epoch, last, was, body)
WHERE l.run_id = given.run_id AND l.epoch = given.epoch AND l.last = given.last AND l.body = given.was;

-- name: logs_recode
UPDATE {schema}.step_logs AS l SET body = given.body
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bytea[])
    AS given (run_id, path, visit, epoch, attempt, was, body)
WHERE l.run_id = given.run_id AND l.path = given.path AND l.visit = given.visit AND l.epoch = given.epoch
  AND l.attempt = given.attempt AND l.body = given.was;

-- name: logs_write
INSERT INTO {schema}.step_logs (run_id, path, visit, epoch, attempt, body, at)
SELECT given.*, coalesce($7::bigint, {schema}.now_1())
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[]) AS given
ON CONFLICT (run_id, path, visit, epoch, attempt) DO UPDATE SET body = excluded.body, at = excluded.at;

-- name: logs_trim
DELETE FROM {schema}.step_logs AS l
USING unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
    AS given (run_id, path, visit, epoch, attempt)
WHERE l.run_id = given.run_id AND l.path = given.path AND l.visit = given.visit AND l.epoch = given.epoch
  AND l.attempt = given.attempt - $6::bigint;

-- name: logs_read
SELECT run_id, path, visit, epoch, attempt, body FROM {schema}.step_logs
WHERE run_id = $1 AND ($2::text IS NULL OR path = $2) ORDER BY path, visit, epoch, attempt;

-- name: add_audit
SELECT {schema}.audit_9($1, $2, $3, $4, $5, $6);

-- name: lock_audit
SELECT pg_advisory_xact_lock(hashtextextended($1, 0));

-- name: has_audit
SELECT 1 FROM {schema}.audit WHERE audit_id = $1;

-- name: audit_newest
SELECT number, audit_id, at, act, actor, run_id, details FROM {schema}.audit
WHERE $1::text IS NULL AND ($2::text IS NULL OR actor = $2) AND ($3::text IS NULL OR act = $3)
  AND ($4::bigint IS NULL OR at >= $4) AND ($5::bigint IS NULL OR at < $5) AND $7::bigint IS NULL
ORDER BY number DESC LIMIT $6;

-- name: audit_after
SELECT number, audit_id, at, act, actor, run_id, details FROM {schema}.audit
WHERE $1::text IS NULL AND ($2::text IS NULL OR actor = $2) AND ($3::text IS NULL OR act = $3)
  AND ($4::bigint IS NULL OR at >= $4) AND ($5::bigint IS NULL OR at < $5) AND number > $7
ORDER BY number LIMIT $6;

-- name: audit_of_run_newest
SELECT number, audit_id, at, act, actor, run_id, details FROM {schema}.audit
WHERE run_id = $1 AND ($2::text IS NULL OR actor = $2) AND ($3::text IS NULL OR act = $3)
  AND ($4::bigint IS NULL OR at >= $4) AND ($5::bigint IS NULL OR at < $5) AND $7::bigint IS NULL
ORDER BY number DESC LIMIT $6;

-- name: audit_of_run_after
SELECT number, audit_id, at, act, actor, run_id, details FROM {schema}.audit
WHERE run_id = $1 AND ($2::text IS NULL OR actor = $2) AND ($3::text IS NULL OR act = $3)
  AND ($4::bigint IS NULL OR at >= $4) AND ($5::bigint IS NULL OR at < $5) AND number > $7
ORDER BY number LIMIT $6;

-- name: forget_audit
DELETE FROM {schema}.audit
WHERE at < $1 AND number = ANY (ARRAY(SELECT number FROM {schema}.audit ORDER BY number LIMIT $2)) RETURNING number;
