-- How many runs there are of each status, and open waits of each kind, without counting them: every change is a row
-- here, as no two writers may wait for each other, and now and then many of them become one. A run's status, or an open
-- wait's kind, is `was` before the change and `became` after it.
CREATE TABLE {schema}.tallies (
    what   text COLLATE "C" NOT NULL,
    was    text COLLATE "C",
    became text COLLATE "C",
    many   bigint NOT NULL
);

CREATE FUNCTION {schema}.sums_7() RETURNS TABLE (what text, name text, many bigint) LANGUAGE sql STABLE AS $$
    SELECT what, name, sum(many)::bigint
    FROM (SELECT what, became AS name, many FROM {schema}.tallies WHERE became IS NOT NULL
          UNION ALL
          SELECT what, was, -many FROM {schema}.tallies WHERE was IS NOT NULL) AS changes
    GROUP BY what, name HAVING sum(many) <> 0
$$;

-- Rows that another client folds at this moment are left to it.
CREATE FUNCTION {schema}.fold_tallies_7() RETURNS void LANGUAGE sql AS $$
    WITH folded AS (
        DELETE FROM {schema}.tallies
        WHERE ctid = ANY (ARRAY(SELECT ctid FROM {schema}.tallies LIMIT 10000 FOR UPDATE SKIP LOCKED))
        RETURNING what, was, became, many
    )
    INSERT INTO {schema}.tallies (what, was, became, many)
    SELECT what, NULL, name, sum(many)
    FROM (SELECT what, became AS name, many FROM folded WHERE became IS NOT NULL
          UNION ALL
          SELECT what, was, -many FROM folded WHERE was IS NOT NULL) AS changes
    GROUP BY what, name HAVING sum(many) <> 0
$$;

CREATE FUNCTION {schema}.tally_run_7() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.tallies (what, was, became, many) VALUES ('run', old.status, new.status, 1);
    IF random() < 0.001 THEN
        PERFORM {schema}.fold_tallies_7();
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION {schema}.tally_wait_7() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.tallies (what, was, became, many)
    VALUES ('wait', CASE WHEN old.status = 'open' THEN old.kind END, CASE WHEN new.status = 'open' THEN new.kind END, 1);
    IF random() < 0.001 THEN
        PERFORM {schema}.fold_tallies_7();
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tally_begun AFTER INSERT ON {schema}.runs FOR EACH ROW EXECUTE FUNCTION {schema}.tally_run_7();
CREATE TRIGGER tally_gone AFTER DELETE ON {schema}.runs FOR EACH ROW EXECUTE FUNCTION {schema}.tally_run_7();
CREATE TRIGGER tally_changed AFTER UPDATE OF status ON {schema}.runs
FOR EACH ROW WHEN (old.status <> new.status) EXECUTE FUNCTION {schema}.tally_run_7();
CREATE TRIGGER tally_opened AFTER INSERT ON {schema}.waits
FOR EACH ROW WHEN (new.status = 'open') EXECUTE FUNCTION {schema}.tally_wait_7();
CREATE TRIGGER tally_gone AFTER DELETE ON {schema}.waits
FOR EACH ROW WHEN (old.status = 'open') EXECUTE FUNCTION {schema}.tally_wait_7();
CREATE TRIGGER tally_changed AFTER UPDATE OF status ON {schema}.waits
FOR EACH ROW WHEN ((old.status = 'open') <> (new.status = 'open')) EXECUTE FUNCTION {schema}.tally_wait_7();

-- No client writes to either table until this is committed.
INSERT INTO {schema}.tallies (what, became, many) SELECT 'run', status, count(*) FROM {schema}.runs GROUP BY status;
INSERT INTO {schema}.tallies (what, became, many)
SELECT 'wait', kind, count(*) FROM {schema}.waits WHERE status = 'open' GROUP BY kind;
