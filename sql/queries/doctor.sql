-- What `interlock doctor` reads from Postgres (proxy/doctor/postgres.py). It changes nothing.

-- name: server_facts
SELECT
    current_setting('server_version'),
    current_setting('server_version_num')::int / 10000,
    current_user,
    extract(epoch FROM clock_timestamp())::float8;

-- name: event_rights
-- $1: the name of tomorrow's partition.
SELECT
    has_table_privilege('events', 'INSERT'),
    has_table_privilege('events', 'UPDATE') OR has_table_privilege('events', 'DELETE'),
    to_regclass($1) IS NOT NULL;
