-- What runs emit, for those who follow them from other processes: a ring that a crash of the server may empty.
CREATE UNLOGGED TABLE {schema}.live (
    run_id text COLLATE "C" NOT NULL,
    epoch  bigint NOT NULL,
    last   bigint NOT NULL,
    count  bigint NOT NULL,
    at     bigint NOT NULL,
    body   bytea  NOT NULL,
    PRIMARY KEY (run_id, epoch, last)
);
CREATE INDEX live_by_age ON {schema}.live (at);

-- What nodes logged and printed, by step; kept as long as the run.
CREATE TABLE {schema}.step_logs (
    run_id  text COLLATE "C" NOT NULL,
    path    text COLLATE "C" NOT NULL,
    visit   bigint NOT NULL,
    epoch   bigint NOT NULL,
    attempt bigint NOT NULL,
    at      bigint NOT NULL,
    body    bytea  NOT NULL,
    PRIMARY KEY (run_id, path, visit, epoch, attempt)
);

-- Both go with their run, whichever client erases it.
CREATE FUNCTION {schema}.forget_live_10() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.live AS l USING gone WHERE l.run_id = gone.run_id;
    DELETE FROM {schema}.step_logs AS l USING gone WHERE l.run_id = gone.run_id;
    RETURN NULL;
END $$;
CREATE TRIGGER forget_live AFTER DELETE ON {schema}.runs REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION {schema}.forget_live_10();
