-- Policy roll-out: signed steps, the policies that they name, and what replicas say of them.
-- Who may publish a step is not who runs a proxy: interlock_publisher inserts steps, interlock_writer only reads them.

CREATE TABLE policy_bundles (
    digest  text PRIMARY KEY CHECK (digest = encode(sha256(convert_to(content, 'UTF8')), 'hex')),
    content text NOT NULL CHECK (octet_length(content) <= 8388608)
);

COMMENT ON TABLE policy_bundles IS 'The files of each policy that was ever pushed. Nothing changes or deletes a row.';
COMMENT ON COLUMN policy_bundles.digest IS 'SHA-256 of the content.';
COMMENT ON COLUMN policy_bundles.content IS 'The files, as one JSON object.';

CREATE TABLE policy_steps (
    number    bigint PRIMARY KEY CHECK (number > 0),
    body      text NOT NULL CHECK (octet_length(body) <= 262144),
    key_id    text NOT NULL,
    signature text NOT NULL
);

COMMENT ON TABLE policy_steps IS 'Every step of the roll-out: push, canary, promote, abort, rollback. Append-only.';
COMMENT ON COLUMN policy_steps.number IS 'Its place; the highest one that a replica can verify is in force. It is part of the body.';
COMMENT ON COLUMN policy_steps.body IS 'What was signed: which versions are in force, for whom, who said so and when, and the hash of the step before.';
COMMENT ON COLUMN policy_steps.key_id IS 'Which key signed it.';
COMMENT ON COLUMN policy_steps.signature IS 'Ed25519 over the body, base64.';

CREATE TABLE policy_returns (
    number      bigint PRIMARY KEY REFERENCES policy_steps,
    replica     text NOT NULL,
    reason      text NOT NULL,
    returned_at timestamptz NOT NULL
);

COMMENT ON TABLE policy_returns IS 'Canaries that a replica ended because denials or errors jumped: all go back to the stable version of that step.';
COMMENT ON COLUMN policy_returns.number IS 'The step whose canary has ended.';
COMMENT ON COLUMN policy_returns.replica IS 'Who ended it.';
COMMENT ON COLUMN policy_returns.reason IS 'The figures that jumped.';
COMMENT ON COLUMN policy_returns.returned_at IS 'When.';

CREATE TABLE policy_counts (
    number  bigint NOT NULL,
    slot    bigint NOT NULL,
    replica text COLLATE "C" NOT NULL,
    side    text NOT NULL CHECK (side IN ('stable', 'canary')),
    calls   bigint NOT NULL,
    denials bigint NOT NULL,
    errors  bigint NOT NULL,
    PRIMARY KEY (number, slot, replica, side)
);

COMMENT ON TABLE policy_counts IS 'What each version of a canary decided, by replica and ten seconds.';
COMMENT ON COLUMN policy_counts.number IS 'The step of the canary.';
COMMENT ON COLUMN policy_counts.slot IS 'Ten seconds, counted from 1970 by the clock of the database.';
COMMENT ON COLUMN policy_counts.replica IS 'Who counted.';
COMMENT ON COLUMN policy_counts.side IS 'Which version decided: stable or canary.';
COMMENT ON COLUMN policy_counts.calls IS 'Calls decided.';
COMMENT ON COLUMN policy_counts.denials IS 'Those denied.';
COMMENT ON COLUMN policy_counts.errors IS 'Those forwarded that ended in an error.';

CREATE TABLE policy_replicas (
    replica text COLLATE "C" PRIMARY KEY,
    number  bigint NOT NULL,
    version text NOT NULL,
    problem text,
    seen_at timestamptz NOT NULL
);

COMMENT ON TABLE policy_replicas IS 'Which policy is in force at each replica that follows pushed policies.';
COMMENT ON COLUMN policy_replicas.replica IS 'Names the replica: its host, and a part of its own.';
COMMENT ON COLUMN policy_replicas.number IS 'The step that it follows; 0: none yet, its own files count.';
COMMENT ON COLUMN policy_replicas.version IS 'The policy in force there.';
COMMENT ON COLUMN policy_replicas.problem IS 'Why a newer step is not in force there, if so.';
COMMENT ON COLUMN policy_replicas.seen_at IS 'When it last said so.';

CREATE FUNCTION interlock_keep_policies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'policy steps and bundles are never changed; push another version';
END $$;
COMMENT ON FUNCTION interlock_keep_policies IS 'Refuses every change of what was pushed.';
CREATE TRIGGER policy_steps_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON policy_steps
    FOR EACH STATEMENT EXECUTE FUNCTION interlock_keep_policies();
CREATE TRIGGER policy_bundles_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON policy_bundles
    FOR EACH STATEMENT EXECUTE FUNCTION interlock_keep_policies();

CREATE FUNCTION interlock_tell_policy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('interlock_policy', NEW.number::text);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION interlock_tell_policy IS 'Tells every replica that listens of a step, or of the end of a canary.';
CREATE TRIGGER policy_steps_told AFTER INSERT ON policy_steps FOR EACH ROW EXECUTE FUNCTION interlock_tell_policy();
CREATE TRIGGER policy_returns_told AFTER INSERT ON policy_returns FOR EACH ROW EXECUTE FUNCTION interlock_tell_policy();

CREATE FUNCTION interlock_grant_policy_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT SELECT ON policy_bundles, policy_steps, policy_returns, policy_counts, policy_replicas TO interlock_writer;
        GRANT INSERT ON policy_returns, policy_counts, policy_replicas TO interlock_writer;
        GRANT UPDATE (calls, denials, errors) ON policy_counts TO interlock_writer;
        GRANT UPDATE (number, version, problem, seen_at) ON policy_replicas TO interlock_writer;
        GRANT DELETE ON policy_counts, policy_replicas TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_publisher') THEN
        GRANT SELECT ON interlock_migrations, policy_bundles, policy_steps, policy_returns, policy_counts, policy_replicas
            TO interlock_publisher;
        GRANT INSERT ON policy_bundles, policy_steps TO interlock_publisher;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON policy_bundles, policy_steps, policy_returns, policy_counts, policy_replicas TO interlock_reader;
    END IF;
END $$;
COMMENT ON FUNCTION interlock_grant_policy_roles IS
    'Give interlock_writer, interlock_publisher and interlock_reader their rights on policy versions, where these roles are there.';
REVOKE EXECUTE ON FUNCTION interlock_grant_policy_roles FROM PUBLIC;

DO $$
BEGIN
    CREATE ROLE interlock_publisher NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;  -- roles belong to the whole cluster
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'role interlock_publisher is not there and may not be created; create it, then SELECT interlock_grant_policy_roles()';
END $$;

SELECT interlock_grant_policy_roles();
