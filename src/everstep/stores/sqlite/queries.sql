-- name: put
-- Accepted only if the writer's epoch is the newest, the run was not asked to stop, and the place is free.
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
UPDATE runs
SET status = ?2, ended_at = ?3, owner = iif(?4, NULL, owner), expires_at = iif(?4, NULL, expires_at),
    process = iif(?4, NULL, process), signal = iif(?5, NULL, signal)
WHERE run_key = ?1;

-- name: end_stop_request
UPDATE runs SET signal = NULL WHERE run_key = ?1;

-- name: insert_run
-- Admitted or restored. No key is given twice.
INSERT INTO runs (run_key, {run_columns})
SELECT max(newest, coalesce((SELECT max(run_key) FROM runs), 0)) + 1, {run_values}
FROM erased_keys WHERE NOT EXISTS (SELECT 1 FROM tombstones WHERE run_id = ?1)
ON CONFLICT DO NOTHING;

-- name: first_id
SELECT (SELECT checkpoint_id FROM runs JOIN checkpoints
        ON position = (run_key << 32) + coalesce(forked_at, 0) + 1 WHERE run_id = ?1),
       EXISTS (SELECT 1 FROM tombstones WHERE run_id = ?1) OR EXISTS (SELECT 1 FROM runs WHERE run_id = ?1);

-- name: first_put
INSERT INTO checkpoints (position, checkpoint_id, keyframe, body) VALUES (?1, ?2, ?3, ?4);

-- name: restart_epochs
UPDATE runs SET epoch = run_key * ?2 WHERE run_key = ?1;

-- name: unbury
DELETE FROM tombstones WHERE run_id = ?1;

-- name: checkpoint_id
SELECT checkpoint_id FROM checkpoints WHERE position = ?1;

-- name: keep_blueprint
INSERT INTO blueprints (flow_hash, structure, number)
VALUES (?1, ?2, (SELECT coalesce(max(number), 0) + 1 FROM blueprints)) ON CONFLICT DO NOTHING;

-- name: adopt
UPDATE runs SET flow_version = ?2, flow_hash = ?3, adopted_at = ?4 WHERE run_key = ?1;

-- name: older_structures
-- Running runs lie in an index, and halted ones have a wait that is not closed; no other run is looked at.
SELECT flow_hash FROM blueprints
WHERE number < (SELECT number FROM blueprints WHERE flow_hash = ?2)
  AND flow_hash IN (
    SELECT flow_hash FROM runs INDEXED BY runs_by_lease WHERE status = 'running' AND flow_id = ?1
    UNION
    SELECT flow_hash FROM waits CROSS JOIN runs USING (run_key)
    WHERE waits.status IN ('open', 'settled') AND runs.flow_id = ?1 AND runs.status = 'halted')
ORDER BY number;

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
SELECT run_key, trimmed_before, coalesce(keyframe, 0),
       (SELECT min(forked_at) FROM runs WHERE parent_run_id = ?1), pinned
FROM runs LEFT JOIN checkpoints ON position = (run_key << 32) + ?2
WHERE run_id = ?1;

-- name: trim
UPDATE checkpoints SET keyframe = 0, body = digest_of(body)
WHERE position >= (?1 << 32) + ?2 AND position < (?1 << 32) + ?3;

-- name: note_trim
UPDATE runs SET trimmed_before = ?2 WHERE run_key = ?1;

-- name: recode
UPDATE checkpoints SET body = ?2 WHERE position = ?1;

-- name: recode_wait
UPDATE waits SET details = ?4, answer = ?5 WHERE wait_id = ?1 AND details = ?2 AND answer IS ?3;

-- name: newest_keyframe
SELECT position FROM checkpoints
WHERE position BETWEEN ?1 AND ?2 AND keyframe ORDER BY position DESC LIMIT 1;

-- name: run
SELECT {run} FROM runs WHERE run_id = ?1;

-- name: runs
-- Each listing has an index of its own, and a condition that fits it.
SELECT {run} FROM runs {index}
WHERE {condition} AND (?1 IS NULL OR flow_id = ?1) AND (?2 IS NULL OR run_id = ?2) AND (?3 IS NULL OR status = ?3)
  AND (?6 IS NULL OR parent_run_id = ?6) AND (?9 IS NULL OR substr(started_by, 1, instr(started_by, ' ') - 1) = ?9) AND (NOT ?8 OR pinned IS NOT NULL)
  AND CASE ?7 WHEN 0 THEN TRUE WHEN 1 THEN needs_repair IS NOT NULL AND NOT substr(needs_repair, 1, 14) = 'paused: since '
      ELSE substr(needs_repair, 1, 14) = 'paused: since ' AND status IN ('running', 'halted') END
  AND run_key < coalesce((SELECT run_key FROM runs WHERE run_id = ?4),
                         (SELECT run_key FROM tombstones WHERE run_id = ?4), CASE WHEN ?4 IS NULL THEN 1 << 62 END)
ORDER BY run_key DESC LIMIT ?5;

-- name: leased_runs
SELECT {run} FROM runs
WHERE status = 'running' AND expires_at > ?1
UNION ALL
SELECT {run} FROM runs
WHERE status <> 'running' AND expires_at > ?1;

-- name: live_leases
SELECT flow_id, run_group FROM runs WHERE status = 'running' AND expires_at > ?1
UNION ALL
SELECT flow_id, run_group FROM runs WHERE status <> 'running' AND expires_at > ?1;

-- name: set_aside
UPDATE runs SET needs_repair = ?3, owner = NULL, expires_at = NULL, process = NULL
WHERE run_id = ?1 AND epoch = ?2 AND status IN ('running', 'halted');

-- name: mark
UPDATE runs SET needs_repair = ?3
WHERE run_id = ?1 AND needs_repair IS ?2 AND status IN ('running', 'halted') AND (signal IS NULL OR ?3 IS NULL);

-- name: pause_lane
INSERT INTO pauses (flow_id, run_group, paused_at, note) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING;

-- name: unpause_lane
DELETE FROM pauses WHERE flow_id = ?1 AND run_group = ?2;

-- name: paused_lanes
SELECT flow_id, run_group, paused_at, note FROM pauses ORDER BY flow_id, run_group;

-- name: paused_runs
SELECT run_id, needs_repair FROM runs
WHERE run_id IN (SELECT value FROM json_each(?1)) AND substr(needs_repair, 1, 14) = 'paused: since ' AND status IN ('running', 'halted');

-- name: fence
UPDATE runs SET epoch = epoch + ?2, owner = NULL, expires_at = NULL, process = NULL
WHERE run_id = ?1 AND status NOT IN ('completed', 'cancelled');

-- name: spoil
UPDATE runs SET needs_repair = ?2 WHERE run_id = ?1;

-- name: claim
-- A run that is paused stays so.
UPDATE runs SET epoch = ?2, owner = ?3, expires_at = ?4, process = ?5, takeovers = ?6, claimed_sequence = ?7,
                needs_repair = CASE WHEN substr(needs_repair, 1, 14) = 'paused: since ' AND status IN ('running', 'halted') THEN needs_repair END
WHERE run_key = ?1;

-- name: renew
UPDATE runs SET expires_at = ?4, process = coalesce(?5, process) WHERE run_id = ?1 AND epoch = ?2 AND owner = ?3 AND signal IS NULL;

-- name: release
UPDATE runs SET owner = NULL, expires_at = NULL, process = NULL WHERE run_id = ?1 AND epoch = ?2;

-- name: request_stop
-- The columns and the table of notes have the names by which earlier releases know them.
-- A run that is paused is so no longer: workers end it.
UPDATE runs SET signal = ?2, needs_repair = CASE WHEN NOT substr(needs_repair, 1, 14) = 'paused: since ' THEN needs_repair END
WHERE run_id = ?1 AND status IN ('running', 'halted');

-- name: has_stop_notes
SELECT 1 FROM sqlite_schema WHERE name = 'signal_notes';

-- name: make_stop_notes
-- Made when the first note is left, outside the numbered schema: releases that know nothing of it are not in its way.
CREATE TABLE IF NOT EXISTS signal_notes (run_key INTEGER PRIMARY KEY, note BLOB NOT NULL);

-- name: note_stop
INSERT OR REPLACE INTO signal_notes SELECT run_key, ?2 FROM runs WHERE run_id = ?1;

-- name: drop_stop_note
DELETE FROM signal_notes WHERE run_key = (SELECT run_key FROM runs WHERE run_id = ?1);

-- name: stop_note
SELECT note FROM signal_notes JOIN runs USING (run_key) WHERE run_id = ?1 AND signal IS NOT NULL;

-- name: ack
UPDATE runs SET acked_at = ?2 WHERE run_id = ?1 AND acked_at IS NULL;

-- name: open_wait
INSERT INTO waits (run_key, {wait_columns}, wake_at, priority, run_group)
SELECT run_key, {wait_values},
       CASE WHEN runs.status <> 'halted' OR :status = 'closed' THEN NULL
            WHEN :status = 'settled' THEN 0 WHEN :scheduler = '' THEN max(:due_at, 1) END,
       runs.priority, runs.run_group
FROM runs WHERE run_key = :run_key;

-- name: has_waits
SELECT 1 FROM waits WHERE run_key = ?1 LIMIT 1;

-- name: close_wait
UPDATE waits SET status = 'closed', wake_at = NULL WHERE wait_id = ?2 AND run_key = ?1;

-- name: close_waits
UPDATE waits SET status = 'closed', wake_at = NULL WHERE run_key = ?1 AND status IN ('open', 'settled');

-- name: rouse_waits
-- The run has just halted.
UPDATE waits SET wake_at = CASE WHEN status = 'settled' THEN 0 WHEN scheduler = '' THEN max(due_at, 1) END
WHERE run_key = ?1 AND status IN ('open', 'settled');

-- name: quiet_waits
-- The run goes on, or has failed.
UPDATE waits SET wake_at = NULL WHERE run_key = ?1 AND status IN ('open', 'settled');

-- name: wait
SELECT {wait} FROM waits JOIN runs USING (run_key) WHERE wait_id = ?1;

-- name: wait_of_token
SELECT {wait} FROM waits JOIN runs USING (run_key) WHERE token_hash = ?1;

-- name: waits
SELECT {wait} FROM waits CROSS JOIN runs USING (run_key)
WHERE (?1 IS NULL OR run_id = ?1) AND (?2 IS NULL OR waits.flow_id = ?2) AND (?3 IS NULL OR kind = ?3)
  AND (?4 IS NULL OR waits.status = ?4)
  AND (?5 IS NULL OR wait_key > (SELECT wait_key FROM waits WHERE wait_id = ?5))
ORDER BY wait_key LIMIT ?6;

-- name: unclosed_waits
-- Apart from the above, as are the next two, so that an index is used.
SELECT {wait} FROM waits CROSS JOIN runs USING (run_key)
WHERE waits.status IN ('open', 'settled') AND waits.status = ?4
  AND (?1 IS NULL OR run_id = ?1) AND (?2 IS NULL OR waits.flow_id = ?2) AND (?3 IS NULL OR kind = ?3)
  AND wait_key > coalesce((SELECT wait_key FROM waits WHERE wait_id = ?5), CASE WHEN ?5 IS NULL THEN -1 END)
ORDER BY wait_key LIMIT ?6;

-- name: waits_of_run
SELECT {wait} FROM waits CROSS JOIN runs USING (run_key)
WHERE waits.run_key = (SELECT run_key FROM runs WHERE run_id = ?1)
  AND (?2 IS NULL OR waits.flow_id = ?2) AND (?3 IS NULL OR kind = ?3) AND (?4 IS NULL OR waits.status = ?4)
  AND (?5 IS NULL OR wait_key > (SELECT wait_key FROM waits WHERE wait_id = ?5))
ORDER BY wait_key LIMIT ?6;

-- name: unclosed_waits_of_run
SELECT {wait} FROM waits INDEXED BY waits_by_run CROSS JOIN runs USING (run_key)
WHERE waits.run_key = (SELECT run_key FROM runs WHERE run_id = ?1) AND waits.status IN ('open', 'settled')
  AND (?2 IS NULL OR waits.flow_id = ?2) AND (?3 IS NULL OR kind = ?3) AND (?4 IS NULL OR waits.status = ?4)
  AND (?5 IS NULL OR wait_key > (SELECT wait_key FROM waits WHERE wait_id = ?5))
ORDER BY wait_key LIMIT ?6;

-- name: untold_waits
SELECT {wait} FROM waits INDEXED BY waits_untold CROSS JOIN runs USING (run_key)
WHERE waits.status = 'open'
  AND ((notifies AND notified_at IS NULL) OR (scheduler <> '' AND due_at IS NOT NULL AND schedule_id IS NULL))
  AND (?1 IS NULL OR run_id = ?1) AND (?2 IS NULL OR waits.flow_id = ?2) AND (?3 IS NULL OR kind = ?3)
  AND (?4 IS NULL OR waits.status = ?4)
  AND (?5 IS NULL OR wait_key > (SELECT wait_key FROM waits WHERE wait_id = ?5))
ORDER BY wait_key LIMIT ?6;

-- name: run_to_send_to
SELECT run_key, status FROM runs WHERE run_id = ?1;

-- name: signal_is_there
SELECT 1 FROM inbox WHERE run_key = ?1 AND signal_id = ?2;

-- name: count_untaken
SELECT coalesce(max(untaken), 0) FROM inbox_sizes WHERE run_key = ?1;

-- name: add_signal
INSERT INTO inbox (run_key, number, signal_id, name, value, sent_at, wait_id, taken_at)
VALUES (?1, coalesce(?8, (SELECT coalesce(max(number), 0) + 1 FROM inbox WHERE run_key = ?1)), ?2, ?3, ?4, ?5, ?6, ?7);

-- name: untaken_signals
SELECT signal_id, name, value, sent_at, number, wait_id, taken_at FROM inbox INDEXED BY inbox_untaken
WHERE run_key = (SELECT run_key FROM runs WHERE run_id = ?1) AND taken_at IS NULL AND ?2 IS NULL
  AND number > ?3 ORDER BY number LIMIT ?4;

-- name: untaken_of_name
SELECT signal_id, name, value, sent_at, number, wait_id, taken_at FROM inbox INDEXED BY inbox_untaken
WHERE run_key = (SELECT run_key FROM runs WHERE run_id = ?1) AND taken_at IS NULL AND name = ?2
  AND number > ?3 ORDER BY number LIMIT ?4;

-- name: recode_signal
UPDATE inbox SET value = ?4 WHERE run_key = ?1 AND number = ?2 AND value = ?3 AND taken_at IS NULL;

-- name: taken_signals
SELECT signal_id, name, value, sent_at, number, wait_id, taken_at FROM inbox
WHERE run_key = (SELECT run_key FROM runs WHERE run_id = ?1) AND taken_at IS NOT NULL AND (?2 IS NULL OR name = ?2)
  AND number > ?3 ORDER BY number LIMIT ?4;

-- name: free_signals
-- Of one name, oldest first: those that settled no wait, or one that was closed without them.
SELECT signal_id, name, value, sent_at, number, inbox.wait_id, taken_at
FROM inbox INDEXED BY inbox_untaken LEFT JOIN waits USING (wait_id)
WHERE inbox.run_key = ?1 AND taken_at IS NULL AND name = ?2
  AND (inbox.wait_id IS NULL OR coalesce(waits.status, 'closed') = 'closed')
ORDER BY number LIMIT ?3;

-- name: open_signal_waits
SELECT {wait} FROM waits INDEXED BY waits_by_run JOIN runs USING (run_key)
WHERE waits.run_key = ?1 AND waits.status = 'open' AND topic >= 'signal:' AND topic < 'signal;' ORDER BY wait_key;

-- name: give_signal
UPDATE inbox SET wait_id = ?3 WHERE run_key = ?1 AND number = ?2;

-- name: take_signal
UPDATE inbox SET taken_at = ?3, value = NULL WHERE run_key = ?1 AND signal_id = ?2 AND taken_at IS NULL;

-- name: drop_events
-- Some of those whose time is over.
DELETE FROM events WHERE event_key IN (SELECT event_key FROM events WHERE expires_at <= ?1 LIMIT 100);

-- name: drop_event
-- The one that is to be kept again.
DELETE FROM events WHERE name = ?1 AND event_id = ?2 AND expires_at <= ?3;

-- name: keep_event
INSERT INTO events (event_id, name, value, published_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING;

-- name: keep_field
INSERT INTO event_fields (name, field, hash, event_key) VALUES (?1, ?2, ?3, ?4);

-- name: next_topic
SELECT min(topic) FROM waits INDEXED BY waits_by_topic WHERE topic IS NOT NULL AND status = 'open' AND topic > ?1;

-- name: waits_for_event
SELECT {wait} FROM waits INDEXED BY waits_by_topic CROSS JOIN runs USING (run_key)
WHERE topic IN (SELECT value FROM json_each(?1)) AND waits.status = 'open' AND topic IS NOT NULL
  AND (due_at IS NULL OR due_at > ?2)
  AND NOT EXISTS (SELECT 1 FROM taken_events AS t
                  WHERE t.run_key = waits.run_key AND t.path = waits.path AND t.name = ?3 AND t.event_id = ?4)
ORDER BY wait_key LIMIT ?5;

-- name: open_event_waits
SELECT {wait} FROM waits INDEXED BY waits_by_run JOIN runs USING (run_key)
WHERE waits.run_key = ?1 AND waits.status = 'open' AND topic >= 'event:' AND topic < 'event;' ORDER BY wait_key;

-- name: kept_event
-- The oldest that has all these fields, and that this node of the run has not had.
SELECT event_id, value FROM events
WHERE name = ?1 AND expires_at > ?2
  AND (?3 = 0 OR event_key IN (
    SELECT event_key FROM json_each(?4) AS wanted JOIN event_fields
    ON event_fields.name = ?1 AND field = wanted.key AND hash = wanted.value
    GROUP BY event_key HAVING count(*) = ?3))
  AND NOT EXISTS (SELECT 1 FROM taken_events AS t
                  WHERE t.run_key = ?5 AND t.path = ?6 AND t.name = ?1 AND t.event_id = events.event_id)
ORDER BY event_key LIMIT 1;

-- name: had_events
SELECT path, name, event_id FROM taken_events WHERE run_key = (SELECT run_key FROM runs WHERE run_id = ?1)
ORDER BY path, name, event_id;

-- name: take_event
INSERT INTO taken_events (run_key, path, name, event_id)
SELECT run_key, ?2, ?3, ?4 FROM runs WHERE run_id = ?1 ON CONFLICT DO NOTHING;

-- name: settle
UPDATE waits
SET status = 'settled', settled_at = ?2, settled_by = ?3, answer = ?4, details = ?5,
    wake_at = CASE WHEN (SELECT status FROM runs WHERE runs.run_key = waits.run_key) = 'halted' THEN 0 END
WHERE wait_id = ?1 AND status = 'open';

-- name: has_due
SELECT 1 FROM waits
WHERE run_key = (SELECT run_key FROM runs WHERE run_id = ?1)
  AND status = 'open' AND scheduler = '' AND due_at <= ?2 LIMIT 1;

-- name: settle_due
UPDATE waits
SET status = 'settled', settled_at = ?2, settled_by = 'clock',
    wake_at = CASE WHEN (SELECT status FROM runs WHERE runs.run_key = waits.run_key) = 'halted' THEN 0 END
WHERE run_key = (SELECT run_key FROM runs WHERE run_id = ?1)
  AND status = 'open' AND scheduler = '' AND due_at <= ?2;

-- name: change_wait
UPDATE waits
SET token_hash = ?2, token_expires_at = ?3, generation = ?4, single_use = ?5, schedule_id = ?6, notified_at = ?7,
    due_at = ?8, details = ?9,
    wake_at = CASE WHEN (SELECT status FROM runs WHERE runs.run_key = waits.run_key) = 'halted' AND scheduler = ''
              THEN max(?8, 1) END
WHERE wait_id = ?1 AND status = 'open';

-- name: stopping_runs
-- Each of these five finds runs that are due, the longest due first: since when, and their lane.
SELECT run_id, 0, runs.priority, runs.flow_id, runs.run_group, TRUE FROM runs INDEXED BY runs_signalled
WHERE signal IS NOT NULL AND status = 'halted' AND (expires_at IS NULL OR expires_at <= ?1)
  AND needs_repair IS NULL AND runs.flow_id || ' ' || flow_hash IN (SELECT value FROM json_each(?2))
  AND run_id NOT IN (SELECT value FROM json_each(?3))
LIMIT ?4;

-- name: settled_runs
-- Of this and the next two, no more are read than are looked at one by one, whichever flows they are of; the last
-- column says which of them are wanted.
SELECT run_id, settled_at, runs.priority, runs.flow_id, runs.run_group,
       (expires_at IS NULL OR expires_at <= ?1) AND needs_repair IS NULL AND runs.flow_id || ' ' || flow_hash IN (SELECT value FROM json_each(?2))
       AND run_id NOT IN (SELECT value FROM json_each(?3))
FROM waits INDEXED BY waits_by_wake CROSS JOIN runs USING (run_key)
WHERE wake_at = 0 ORDER BY settled_at LIMIT ?4;

-- name: due_runs
SELECT run_id, wake_at, runs.priority, runs.flow_id, runs.run_group,
       (expires_at IS NULL OR expires_at <= ?1) AND needs_repair IS NULL AND runs.flow_id || ' ' || flow_hash IN (SELECT value FROM json_each(?2))
       AND run_id NOT IN (SELECT value FROM json_each(?3))
FROM waits INDEXED BY waits_by_wake CROSS JOIN runs USING (run_key)
WHERE wake_at > 0 AND wake_at <= ?1 ORDER BY wake_at LIMIT ?4;

-- name: expired_runs
SELECT run_id, expires_at, priority, flow_id, run_group, TRUE FROM runs INDEXED BY runs_by_lease
WHERE status = 'running' AND expires_at <= ?1
  AND needs_repair IS NULL AND runs.flow_id || ' ' || flow_hash IN (SELECT value FROM json_each(?2))
  AND run_id NOT IN (SELECT value FROM json_each(?3))
ORDER BY expires_at LIMIT ?4;

-- name: ownerless_runs
-- When a lease was given back is not known; an old run is taken for one that has waited long.
SELECT run_id, created_at, priority, flow_id, run_group,
       needs_repair IS NULL AND runs.flow_id || ' ' || flow_hash IN (SELECT value FROM json_each(?2))
       AND run_id NOT IN (SELECT value FROM json_each(?3))
FROM runs INDEXED BY runs_by_lease
WHERE status = 'running' AND expires_at IS NULL ORDER BY run_key LIMIT ?4;

-- name: never_claimed
SELECT run_id FROM runs WHERE run_id IN (SELECT value FROM json_each(?1)) AND epoch = 0;

-- name: is_under_way
SELECT 1 FROM runs WHERE run_id = ?1 AND epoch > 0 AND status IN ('running', 'halted');

-- name: due_holder
SELECT created_at, run_id FROM runs
WHERE run_id = ?4 AND status = 'running' AND expires_at IS NULL AND needs_repair IS NULL
  AND flow_id || ' ' || flow_hash IN (SELECT value FROM json_each(?2))
  AND run_id NOT IN (SELECT value FROM json_each(?3));

-- name: run_and_group
SELECT flow_id, run_group, epoch, expires_at FROM runs WHERE run_id = ?1;

-- name: limit_state
SELECT state FROM limit_states WHERE limit_key = ?1;

-- name: limit_states
SELECT limit_key, state FROM limit_states
WHERE limit_key >= ?1 AND limit_key < ?2 AND limit_key > ?4 ORDER BY limit_key LIMIT ?3;

-- name: keep_limit_state
INSERT OR REPLACE INTO limit_states (limit_key, state) VALUES (?1, ?2);

-- name: drop_limit_state
DELETE FROM limit_states WHERE limit_key = ?1;

-- name: ownerless_priority
-- The next seven go from lane to lane, where there are more such runs than can be looked at.
SELECT max(priority) FROM runs INDEXED BY runs_waiting
WHERE status = 'running' AND expires_at IS NULL AND flow_id = ?1 AND priority < ?2;

-- name: ownerless_group
SELECT min(run_group) FROM runs INDEXED BY runs_waiting
WHERE status = 'running' AND expires_at IS NULL AND flow_id = ?1 AND priority = ?2 AND run_group >= ?3;

-- name: ownerless_lane
SELECT created_at, run_id FROM runs INDEXED BY runs_waiting
WHERE status = 'running' AND expires_at IS NULL AND runs.flow_id = ?4 AND priority = ?5 AND run_group = ?6
  AND needs_repair IS NULL AND runs.flow_id || ' ' || flow_hash IN (SELECT value FROM json_each(?2))
  AND run_id NOT IN (SELECT value FROM json_each(?3))
ORDER BY run_key;

-- name: waking_priority
SELECT max(priority) FROM waits INDEXED BY waits_by_lane
WHERE wake_at IS NOT NULL AND flow_id = ?1 AND priority < ?2;

-- name: waking_group
SELECT min(run_group) FROM waits INDEXED BY waits_by_lane
WHERE wake_at IS NOT NULL AND flow_id = ?1 AND priority = ?2 AND run_group >= ?3;

-- name: settled_lane
SELECT settled_at, run_id FROM waits INDEXED BY waits_by_lane CROSS JOIN runs USING (run_key)
WHERE wake_at = 0 AND waits.flow_id = ?4 AND waits.priority = ?5 AND waits.run_group = ?6
  AND (expires_at IS NULL OR expires_at <= ?1)
  AND needs_repair IS NULL AND runs.flow_id || ' ' || flow_hash IN (SELECT value FROM json_each(?2))
  AND run_id NOT IN (SELECT value FROM json_each(?3))
ORDER BY settled_at;

-- name: due_lane
SELECT wake_at, run_id FROM waits INDEXED BY waits_by_lane CROSS JOIN runs USING (run_key)
WHERE wake_at > 0 AND wake_at <= ?1 AND waits.flow_id = ?4 AND waits.priority = ?5 AND waits.run_group = ?6
  AND (expires_at IS NULL OR expires_at <= ?1)
  AND needs_repair IS NULL AND runs.flow_id || ' ' || flow_hash IN (SELECT value FROM json_each(?2))
  AND run_id NOT IN (SELECT value FROM json_each(?3))
ORDER BY wake_at;

-- name: runs_by_status
-- Nearly all runs have completed: those are all but the others, and to count all of them reads no row.
WITH apart (status, many) AS (
    SELECT status, count(*) FROM runs INDEXED BY runs_by_status
    WHERE status <> 'running' AND status <> 'completed' GROUP BY status
    UNION ALL
    SELECT 'running', count(*) FROM runs INDEXED BY runs_by_lease WHERE status = 'running'
)
SELECT status, many FROM apart WHERE many > 0
UNION ALL
SELECT 'completed', completed
FROM (SELECT (SELECT count(*) FROM runs) - (SELECT coalesce(sum(many), 0) FROM apart) AS completed)
WHERE completed > 0;

-- name: open_waits_by_kind
-- That it is one of these two leads to an index: waits that are closed are not looked at.
SELECT kind, count(*) FROM waits INDEXED BY waits_unclosed
WHERE status IN ('open', 'settled') AND status = 'open' GROUP BY kind;

-- name: run_at
SELECT run_id FROM runs
WHERE status NOT IN ('completed', 'cancelled') AND ?1 = (
    SELECT checkpoint_id FROM checkpoints
    WHERE position BETWEEN run_key << 32 AND (run_key << 32) + 0xFFFFFFFF ORDER BY position DESC LIMIT 1
);

-- name: backlog
-- Of each kind of run that is due, no more are looked at than so many, the longest due first.
SELECT flow_id, flow_hash, count(*), min(since) FROM (
    SELECT run_key, min(since) AS since FROM (
        SELECT * FROM (SELECT run_key, ?1 AS since FROM runs INDEXED BY runs_signalled
                       WHERE signal IS NOT NULL AND status = 'halted' LIMIT ?2)
        UNION ALL
        SELECT * FROM (SELECT run_key, settled_at FROM waits INDEXED BY waits_by_wake
                       WHERE wake_at = 0 ORDER BY settled_at LIMIT ?2)
        UNION ALL
        SELECT * FROM (SELECT run_key, wake_at FROM waits INDEXED BY waits_by_wake
                       WHERE wake_at > 0 AND wake_at <= ?1 ORDER BY wake_at LIMIT ?2)
        UNION ALL
        SELECT * FROM (SELECT run_key, expires_at FROM runs INDEXED BY runs_by_lease
                       WHERE status = 'running' AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2)
        UNION ALL
        SELECT * FROM (SELECT run_key, created_at FROM runs INDEXED BY runs_by_lease
                       WHERE status = 'running' AND expires_at IS NULL ORDER BY run_key LIMIT ?2)
    ) GROUP BY run_key
) JOIN runs USING (run_key)
WHERE needs_repair IS NULL AND (expires_at IS NULL OR expires_at <= ?1)
GROUP BY flow_id, flow_hash;

-- name: next_due
SELECT min(wake_at) FROM waits WHERE wake_at > max(?1, 0);

-- name: report
INSERT INTO workers (worker_id, started_at, seen_at, expires_at, details) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (worker_id) DO UPDATE SET started_at = ?2, seen_at = ?3, expires_at = ?4, details = ?5;

-- name: forget_workers
DELETE FROM workers WHERE expires_at <= ?1;

-- name: leave
DELETE FROM workers WHERE worker_id = ?1;

-- name: workers
SELECT details, seen_at FROM workers WHERE expires_at > ?1 ORDER BY started_at, worker_id;

-- name: has_forks
SELECT EXISTS (SELECT 1 FROM runs WHERE parent_run_id = ?1);

-- name: bury
INSERT INTO tombstones (run_key, run_id, flow_id, created_at, erased_at, reason, summary)
SELECT run_key, run_id, flow_id, created_at, ?2, ?3, ?4 FROM runs WHERE run_key = ?1;

-- name: note_key
UPDATE erased_keys SET newest = max(newest, ?1);

-- name: erase_waits
DELETE FROM waits WHERE run_key = ?1;

-- name: erase_records
DELETE FROM checkpoints WHERE position BETWEEN ?1 << 32 AND (?1 + 1 << 32) - 1;

-- name: erase_run
DELETE FROM runs WHERE run_key = ?1;

-- name: tombstone
SELECT {tombstone} FROM tombstones WHERE run_id = ?1;

-- name: tombstones
SELECT {tombstone} FROM tombstones
WHERE (?1 IS NULL OR flow_id = ?1)
  AND number < coalesce((SELECT number FROM tombstones WHERE run_id = ?2), CASE WHEN ?2 IS NULL THEN 1 << 62 END)
ORDER BY number DESC LIMIT ?3;

-- name: forget
DELETE FROM tombstones WHERE run_id IN (SELECT value FROM json_each(?1));

-- name: pin
UPDATE runs SET pinned = ?2 WHERE run_id = ?1;

-- name: note_removal
INSERT INTO removals (details) VALUES (?1);

-- name: removals
SELECT number, details FROM removals WHERE number < coalesce(?1, 1 << 62) ORDER BY number DESC LIMIT ?2;

-- name: add_audit
INSERT OR IGNORE INTO audit (audit_id, at, act, actor, run_id, details) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: has_audit
SELECT 1 FROM audit WHERE audit_id = ?1;

-- name: audit_newest
SELECT number, audit_id, at, act, actor, run_id, details FROM audit
WHERE (?2 IS NULL OR actor = ?2) AND (?3 IS NULL OR act = ?3) AND at >= coalesce(?4, at) AND at < coalesce(?5, at + 1)
  AND ?1 IS NULL AND ?7 IS NULL
ORDER BY number DESC LIMIT ?6;

-- name: audit_after
SELECT number, audit_id, at, act, actor, run_id, details FROM audit
WHERE (?2 IS NULL OR actor = ?2) AND (?3 IS NULL OR act = ?3) AND at >= coalesce(?4, at) AND at < coalesce(?5, at + 1)
  AND ?1 IS NULL AND number > ?7
ORDER BY number LIMIT ?6;

-- name: audit_of_run_newest
SELECT number, audit_id, at, act, actor, run_id, details FROM audit
WHERE (?2 IS NULL OR actor = ?2) AND (?3 IS NULL OR act = ?3) AND at >= coalesce(?4, at) AND at < coalesce(?5, at + 1)
  AND run_id = ?1 AND ?7 IS NULL
ORDER BY number DESC LIMIT ?6;

-- name: audit_of_run_after
SELECT number, audit_id, at, act, actor, run_id, details FROM audit
WHERE (?2 IS NULL OR actor = ?2) AND (?3 IS NULL OR act = ?3) AND at >= coalesce(?4, at) AND at < coalesce(?5, at + 1)
  AND run_id = ?1 AND number > ?7
ORDER BY number LIMIT ?6;

-- name: forget_audit
DELETE FROM audit WHERE at < ?1 AND number IN (SELECT number FROM audit ORDER BY number LIMIT ?2);
