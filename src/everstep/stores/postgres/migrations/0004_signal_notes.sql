-- Who left a signal, and why.
ALTER TABLE {schema}.runs ADD COLUMN signal_note bytea;
