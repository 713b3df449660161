-- Two roles to give to logins: interlock_writer for proxies, interlock_reader for people who ask.
-- The owner of the tables migrates, sets baselines and prunes.

CREATE FUNCTION interlock_grant_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT SELECT ON interlock_migrations, tool_prompt_baselines, proposals, commits TO interlock_writer;
        GRANT INSERT ON events, proposals, commits TO interlock_writer;
        GRANT UPDATE (state, awaited, operator, operator_reason, operator_at, expires_at) ON proposals TO interlock_writer;
        GRANT UPDATE (outcome, ended_at, attempt_id, attempts, question) ON commits TO interlock_writer;
        GRANT DELETE ON proposals, commits TO interlock_writer;
        GRANT EXECUTE ON FUNCTION interlock_make_partitions TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON interlock_migrations, tool_prompt_baselines, proposals, commits, events,
            tool_calls, denied_calls, two_phase_ledger, server_behaviour TO interlock_reader;
    END IF;
END $$;
COMMENT ON FUNCTION interlock_grant_roles IS
    'Give interlock_writer and interlock_reader their rights, where these roles are there. '
    'For databases where the migrating role may not create roles: create them, then call this.';

REVOKE EXECUTE ON FUNCTION interlock_make_partitions, interlock_drop_events, interlock_grant_roles FROM PUBLIC;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['interlock_writer', 'interlock_reader'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;  -- roles belong to the whole cluster
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'role % is not there and may not be created; create it, then SELECT interlock_grant_roles()', name;
        END;
    END LOOP;
END $$;

SELECT interlock_grant_roles();
