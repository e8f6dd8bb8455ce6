-- name: set_attribute
INSERT INTO attributes (run_key, name, kind, text_value, number_value) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (run_key, name) DO UPDATE SET kind = ?3, text_value = ?4, number_value = ?5;

-- name: set_tag
INSERT INTO tags (run_key, name, value) VALUES (?1, ?2, ?3) ON CONFLICT (run_key, name) DO UPDATE SET value = ?3;

-- name: drop_tag
DELETE FROM tags WHERE run_key = ?1 AND name = ?2;

-- name: tags_of
SELECT name, value FROM tags WHERE run_key = ?1 ORDER BY name;

-- name: tags
-- What a run says of undoing has no name.
SELECT run_id, name, tags.value FROM json_each(?1) AS asked CROSS JOIN runs ON run_id = asked.value
CROSS JOIN tags USING (run_key)
UNION ALL
SELECT run_id, NULL, undoing FROM json_each(?1) AS asked CROSS JOIN runs ON run_id = asked.value
WHERE undoing IS NOT NULL
ORDER BY 1, 2;

-- name: set_undoing
UPDATE runs SET undoing = ?2 WHERE run_key = ?1;

-- name: attributes
SELECT run_id, name, kind, text_value, number_value FROM json_each(?1) AS asked CROSS JOIN runs ON run_id = asked.value
CROSS JOIN attributes USING (run_key) ORDER BY run_key, name;

-- name: key_before
-- A listing may go on from a run that was erased meanwhile.
SELECT coalesce((SELECT run_key FROM runs WHERE run_id = :before),
                (SELECT run_key FROM tombstones WHERE run_id = :before));

-- name: run_from_key
SELECT run_id FROM runs WHERE run_key >= :key ORDER BY run_key LIMIT 1;

-- name: keys
-- The oldest, the newest, and that no transaction is under way: a file has one at a time, whose run has the next key.
SELECT coalesce((SELECT min(run_key) FROM runs), 0), coalesce((SELECT max(run_key) FROM runs), 0), 0, 0;

-- name: newest_times
SELECT count(*), min(created_at), max(created_at)
FROM (SELECT created_at FROM runs WHERE run_key >= :first AND run_key < :before LIMIT :most);

-- name: stretches
SELECT run_key / :size, min(created_at), max(created_at) FROM runs
WHERE run_key >= :first AND run_key < :before GROUP BY 1;

-- name: has_empty_value
SELECT value FROM tags WHERE name = :name AND value = '' LIMIT 1;

-- name: next_tag_value
SELECT min(value) FROM tags WHERE name = :name AND value > :last;

-- name: count_tags
SELECT count(*) FROM (SELECT 1 FROM tags INDEXED BY tags_by_value WHERE name = :name LIMIT :most);

-- name: count_texts
SELECT count(*) FROM (SELECT 1 FROM attributes INDEXED BY attributes_by_text
                      WHERE name = :name AND text_value IS NOT NULL LIMIT :most);

-- name: count_numbers
SELECT count(*) FROM (SELECT 1 FROM attributes INDEXED BY attributes_by_number
                      WHERE name = :name AND number_value BETWEEN :low AND :high LIMIT :most);

-- name: with_tag
-- Each of these leads to runs of which a label is wanted; {k} tells several values apart.
SELECT run_key FROM tags INDEXED BY tags_by_value WHERE name = :name AND run_key < :before

-- name: with_tag_value
SELECT run_key FROM tags INDEXED BY tags_by_value
WHERE name = :name AND value = :text{k} AND run_key < :before

-- name: with_text
SELECT run_key FROM attributes INDEXED BY attributes_by_text
WHERE name = :name AND text_value = :text{k} AND run_key < :before

-- name: with_number
SELECT run_key FROM attributes INDEXED BY attributes_by_number
WHERE name = :name AND number_value = :low{k} AND run_key < :before

-- name: with_range
SELECT run_key FROM attributes INDEXED BY attributes_by_number
WHERE name = :name AND number_value BETWEEN :low{k} AND :high{k} AND run_key < :before

-- name: with_any_text
SELECT run_key FROM attributes INDEXED BY attributes_by_text
WHERE name = :name AND text_value IS NOT NULL AND run_key < :before

-- name: newest
-- The runs of a listing, one after the other.
SELECT run_key FROM runs {way} WHERE {condition} AND run_key < :before

-- name: found
WITH found AS MATERIALIZED ({candidates} ORDER BY run_key DESC LIMIT :most)
SELECT {run} FROM found CROSS JOIN runs USING (run_key)
WHERE created_at BETWEEN :since AND :until AND (:flow IS NULL OR flow_id = :flow)
  AND (:id IS NULL OR run_id = :id) AND (:status IS NULL OR status = :status)
  AND (:parent IS NULL OR parent_run_id = :parent)
  AND (:starter IS NULL OR substr(started_by, 1, instr(started_by, ' ') - 1) = :starter)
  AND CASE :marked WHEN 0 THEN TRUE WHEN 1 THEN needs_repair IS NOT NULL AND NOT substr(needs_repair, 1, 14) = 'paused: since '
      ELSE substr(needs_repair, 1, 14) = 'paused: since ' AND status IN ('running', 'halted') END
  AND (NOT :pinned OR pinned IS NOT NULL) AND {fits}
ORDER BY run_key DESC LIMIT :limit;

-- name: looked_at
WITH found AS MATERIALIZED ({candidates} ORDER BY run_key DESC LIMIT :most)
SELECT count(*), min(run_key) FROM found;

-- name: has_tag
EXISTS (SELECT 1 FROM tags WHERE tags.run_key = found.run_key AND tags.name = :name)

-- name: has_attribute
EXISTS (SELECT 1 FROM attributes AS a WHERE a.run_key = found.run_key AND a.name = :name
        AND (:is_any OR a.number_value BETWEEN :low0 AND :high0))

-- name: tally_flow
SELECT flow_id, count(*) FROM runs INDEXED BY runs_by_flow GROUP BY flow_id;

-- name: tally_tag
SELECT name, count(*) FROM tags GROUP BY name;

-- name: tally_tag_values
SELECT value, count(*) FROM tags WHERE name = :name GROUP BY value;

-- name: tally_texts
SELECT text_value, count(*) FROM attributes INDEXED BY attributes_by_text
WHERE name = :name AND text_value IS NOT NULL GROUP BY text_value;

-- name: tally_numbers
SELECT kind, number_value, count(*) FROM attributes INDEXED BY attributes_by_number
WHERE name = :name AND number_value IS NOT NULL GROUP BY number_value, kind;

-- name: count_runs
SELECT count(*) FROM runs;
