-- name: tags_of
SELECT name, value FROM {schema}.tags WHERE run_key = $1 ORDER BY name;

-- name: set_tags
-- The run is locked, and has none of these names: what had another value was dropped.
INSERT INTO {schema}.tags (run_key, name, value) SELECT $1, * FROM unnest($2::text[], $3::text[]);

-- name: drop_tags
DELETE FROM {schema}.tags WHERE run_key = $1 AND name = ANY ($2);

-- name: lock_run
SELECT run_key FROM {schema}.runs WHERE run_id = $1 FOR NO KEY UPDATE;

-- name: labels
WITH asked AS MATERIALIZED (SELECT run_key, run_id FROM {schema}.runs WHERE run_id = ANY ($1))
SELECT run_id, name, NULL, value, NULL FROM asked JOIN {schema}.tags USING (run_key)
UNION ALL
SELECT run_id, name, kind, text_value, number_value FROM asked JOIN {schema}.attributes USING (run_key)
UNION ALL
SELECT run_id, NULL, NULL, undoing, NULL FROM asked JOIN {schema}.runs USING (run_key, run_id) WHERE undoing IS NOT NULL
ORDER BY 1, 2;

-- name: look_up
-- Until the end of the transaction. A search reads few rows, wherever they lie: what the server believes of how they are
-- spread leads it through whole tables.
SELECT set_config('enable_seqscan', 'off', true), set_config('random_page_cost', '1', true),
       set_config('max_parallel_workers_per_gather', '0', true);

-- name: key_before
-- A listing may go on from a run that was erased meanwhile.
SELECT coalesce((SELECT run_key FROM {schema}.runs WHERE run_id = :before),
                (SELECT run_key FROM {schema}.tombstones WHERE run_id = :before));

-- name: run_from_key
SELECT run_id FROM {schema}.runs WHERE run_key >= :key ORDER BY run_key LIMIT 1;

-- name: keys
-- The oldest, the newest, and which transactions write: the oldest of them, and the next one.
SELECT coalesce((SELECT min(run_key) FROM {schema}.runs), 0), coalesce((SELECT max(run_key) FROM {schema}.runs), 0),
       txid_snapshot_xmin(txid_current_snapshot()), txid_snapshot_xmax(txid_current_snapshot());

-- name: newest_times
SELECT count(*), min(created_at), max(created_at)
FROM (SELECT created_at FROM {schema}.runs WHERE run_key >= :first AND run_key < :before LIMIT :most) AS a_few;

-- name: stretches
SELECT run_key / :size, min(created_at), max(created_at) FROM {schema}.runs
WHERE run_key >= :first AND run_key < :before GROUP BY 1;

-- name: has_empty_value
SELECT value FROM {schema}.tags WHERE name = :name AND value = '' LIMIT 1;

-- name: next_tag_value
SELECT min(value) FROM {schema}.tags WHERE name = :name AND value > :last;

-- name: count_tags
SELECT count(*) FROM (SELECT FROM {schema}.tags WHERE name = :name ORDER BY value LIMIT :most) AS a_few;

-- name: count_texts
SELECT count(*) FROM (SELECT FROM {schema}.attributes
                      WHERE name = :name AND text_value IS NOT NULL ORDER BY text_value LIMIT :most) AS a_few;

-- name: count_numbers
SELECT count(*) FROM (SELECT FROM {schema}.attributes
                      WHERE name = :name AND number_value BETWEEN :low AND :high
                      ORDER BY number_value LIMIT :most) AS a_few;

-- name: with_tag
-- Each of these leads to runs of which a label is wanted; {k} tells several values apart.
(SELECT run_key FROM {schema}.tags WHERE name = :name AND run_key < :before)

-- name: with_tag_value
(SELECT run_key FROM {schema}.tags WHERE name = :name AND value = :text{k} AND run_key < :before
 ORDER BY run_key DESC LIMIT :most)

-- name: with_text
(SELECT run_key FROM {schema}.attributes WHERE name = :name AND text_value = :text{k} AND run_key < :before
 ORDER BY run_key DESC LIMIT :most)

-- name: with_number
(SELECT run_key FROM {schema}.attributes WHERE name = :name AND number_value = :low{k} AND run_key < :before
 ORDER BY run_key DESC LIMIT :most)

-- name: with_range
(SELECT run_key FROM {schema}.attributes
 WHERE name = :name AND number_value BETWEEN :low{k} AND :high{k} AND run_key < :before)

-- name: with_any_text
(SELECT run_key FROM {schema}.attributes WHERE name = :name AND text_value IS NOT NULL AND run_key < :before)

-- name: newest
-- The runs of a listing, one after the other.
(SELECT run_key FROM {schema}.runs WHERE {condition} AND run_key < :before ORDER BY {way}run_key DESC LIMIT :most)

-- name: found
WITH found (key) AS MATERIALIZED (
    SELECT run_key FROM ({candidates}) AS candidates ORDER BY run_key DESC LIMIT :most)
SELECT {run}
FROM found CROSS JOIN LATERAL (SELECT * FROM {schema}.runs WHERE runs.run_key = found.key LIMIT 1) AS runs
WHERE created_at BETWEEN :since AND :until AND (:flow::text IS NULL OR flow_id = :flow)
  AND (:id::text IS NULL OR run_id = :id) AND (:status::text IS NULL OR status = :status)
  AND (:parent::text IS NULL OR parent_run_id = :parent)
  AND (:starter::text IS NULL OR split_part(started_by, ' ', 1) = :starter)
  AND CASE :marked WHEN 0 THEN TRUE WHEN 1 THEN needs_repair IS NOT NULL AND NOT left(needs_repair, 14) = 'paused: since '
      ELSE left(needs_repair, 14) = 'paused: since ' AND status IN ('running', 'halted') END
  AND (NOT :pinned OR pinned IS NOT NULL) AND {fits}
ORDER BY found.key DESC LIMIT :limit;

-- name: looked_at
WITH found (key) AS MATERIALIZED (
    SELECT run_key FROM ({candidates}) AS candidates ORDER BY run_key DESC LIMIT :most)
SELECT count(*), min(key) FROM found;

-- name: has_tag
EXISTS (SELECT FROM {schema}.tags WHERE tags.run_key = found.key AND tags.name = :name)

-- name: has_attribute
EXISTS (SELECT FROM {schema}.attributes AS a WHERE a.run_key = found.key AND a.name = :name
        AND (:is_any OR a.number_value BETWEEN :low0 AND :high0))

-- name: tally_flow
SELECT flow_id, count(*) FROM {schema}.runs GROUP BY flow_id;

-- name: tally_tag
SELECT name, count(*) FROM {schema}.tags GROUP BY name;

-- name: tally_tag_values
SELECT value, count(*) FROM {schema}.tags WHERE name = :name GROUP BY value;

-- name: tally_texts
SELECT text_value, count(*) FROM {schema}.attributes
WHERE name = :name AND text_value IS NOT NULL GROUP BY text_value;

-- name: tally_numbers
SELECT kind, number_value, count(*) FROM {schema}.attributes
WHERE name = :name AND number_value IS NOT NULL GROUP BY number_value, kind;

-- name: count_runs
SELECT count(*) FROM {schema}.runs;
