-- Why a run is to be kept, whatever retention says.
ALTER TABLE {schema}.runs ADD COLUMN pinned text COLLATE "C";
CREATE INDEX runs_pinned ON {schema}.runs (run_key) WHERE pinned IS NOT NULL;

-- What is left of runs that were erased. A listing may go on from one of them, so its key is known.
CREATE TABLE {schema}.tombstones (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_key    bigint NOT NULL,
    run_id     text COLLATE "C" NOT NULL UNIQUE,
    flow_id    text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    erased_at  bigint NOT NULL,
    reason     text COLLATE "C" NOT NULL,
    summary    bytea
);

CREATE TABLE {schema}.removals (
    number  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    details bytea NOT NULL
);

-- No run gets the id of one that was erased, whichever client admits it. Whoever erases that run at this moment
-- is waited for: the next statement then sees the tombstone.
CREATE FUNCTION {schema}.keep_taken_3() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM {schema}.runs WHERE run_id = new.run_id FOR KEY SHARE;
    IF EXISTS (SELECT FROM {schema}.tombstones WHERE run_id = new.run_id) THEN
        RETURN NULL;
    END IF;
    RETURN new;
END $$;
CREATE TRIGGER keep_taken BEFORE INSERT ON {schema}.runs FOR EACH ROW EXECUTE FUNCTION {schema}.keep_taken_3();

-- What is there already counts as put now; a default that must be worked out for each row would write them all anew.
DO $$ BEGIN
    EXECUTE format('ALTER TABLE {schema}.artifacts ADD COLUMN touched_at bigint NOT NULL DEFAULT %s', {schema}.now_1());
END $$;
ALTER TABLE {schema}.artifacts ALTER COLUMN touched_at SET DEFAULT {schema}.now_1();
