-- Which migrations a Postgres database has. Made before the first of them.
CREATE TABLE IF NOT EXISTS interlock_migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE interlock_migrations IS 'The migrations of sql/postgres/ that were applied here, by `interlock db migrate`.';
COMMENT ON COLUMN interlock_migrations.version IS 'The number at the head of the migration''s file name.';
COMMENT ON COLUMN interlock_migrations.name IS 'The rest of the file name.';
COMMENT ON COLUMN interlock_migrations.checksum IS 'SHA-256 of the text that was applied.';
COMMENT ON COLUMN interlock_migrations.applied_at IS 'When it was applied.';
