-- Which migrations a Postgres database has (proxy/store/migrate.py). The table is in sql/postgres_migrations.sql.

-- name: has_migrations_table
SELECT to_regclass('interlock_migrations') IS NOT NULL;

-- name: list_applied
SELECT version, name, checksum, applied_at FROM interlock_migrations ORDER BY version;

-- name: insert_applied
INSERT INTO interlock_migrations (version, name, checksum) VALUES ($1, $2, $3);

-- name: take_migration_lock
SELECT pg_advisory_xact_lock($1);
