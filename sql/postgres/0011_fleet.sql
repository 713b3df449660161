-- What the replicas of a fleet share: agents, operators, pins and sealed keys; and which replicas there are.

CREATE TABLE fleet (
    id         integer PRIMARY KEY CHECK (id = 1),
    fleet_id   text NOT NULL,
    kek_id     text NOT NULL,
    probe      bytea NOT NULL,
    revision   bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE fleet IS 'The fleet whose replicas share this database. No row: every proxy keeps its state in its own folder.';
COMMENT ON COLUMN fleet.id IS 'There is one row.';
COMMENT ON COLUMN fleet.fleet_id IS 'Names the fleet.';
COMMENT ON COLUMN fleet.kek_id IS 'Names the key-encryption key, which is never here.';
COMMENT ON COLUMN fleet.probe IS 'A known text sealed with that key: who cannot open it has another key.';
COMMENT ON COLUMN fleet.revision IS 'Counts the changes of what is shared.';
COMMENT ON COLUMN fleet.created_at IS 'When `interlock fleet init` was run.';

CREATE TABLE shared_documents (
    name       text COLLATE "C" PRIMARY KEY,
    generation bigint NOT NULL CHECK (generation > 0),
    key_id     text NOT NULL,
    body       bytea NOT NULL,
    seal       bytea NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE shared_documents IS 'Agents, operators, and the keys of the fleet. Keys are encrypted; no proxy may write here.';
COMMENT ON COLUMN shared_documents.name IS 'list:agents, list:operators, or secret: and the name of a key.';
COMMENT ON COLUMN shared_documents.generation IS 'Counts the changes of this document. A replica takes none that is older than the one it knows.';
COMMENT ON COLUMN shared_documents.key_id IS 'Names the key inside; of a list, what authenticates it.';
COMMENT ON COLUMN shared_documents.body IS 'Of a list, names and hashes of tokens as JSON; of a secret, AES-256-GCM under the key-encryption key.';
COMMENT ON COLUMN shared_documents.seal IS 'Of a list, an HMAC over fleet, name, generation and body; of a secret, its nonce. A row put in another place opens nothing.';
COMMENT ON COLUMN shared_documents.changed_at IS 'When it was changed last.';

CREATE TABLE shared_pins (
    name       text COLLATE "C" PRIMARY KEY,
    generation bigint NOT NULL CHECK (generation > 0),
    approvals  bigint NOT NULL,
    listing    boolean NOT NULL,
    marks      jsonb NOT NULL CHECK (jsonb_typeof(marks) = 'object'),
    body       bytea NOT NULL,
    seal       bytea NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE shared_pins IS 'The pinned tools of each server. A proxy adds what it sees and may approve nothing.';
COMMENT ON COLUMN shared_pins.name IS 'A hash of the server''s name.';
COMMENT ON COLUMN shared_pins.generation IS 'Counts the changes of this server''s pins.';
COMMENT ON COLUMN shared_pins.approvals IS 'How often somebody approved.';
COMMENT ON COLUMN shared_pins.listing IS 'Whether the first list of tools, which is taken on trust, is still to come or under way.';
COMMENT ON COLUMN shared_pins.marks IS 'For each tool, by a hash of its name: the digest that was approved, and whether the tool has drifted since.';
COMMENT ON COLUMN shared_pins.body IS 'The pins as JSON. Whoever reads them checks that listing, approvals and marks say the same.';
COMMENT ON COLUMN shared_pins.seal IS 'An HMAC over fleet, name, generation and body.';
COMMENT ON COLUMN shared_pins.changed_at IS 'When it was changed last.';

CREATE TABLE fleet_replicas (
    replica_id     text COLLATE "C" PRIMARY KEY,
    host           text NOT NULL,
    version        text NOT NULL,
    schema_version integer NOT NULL,
    policy         text NOT NULL,
    keys           text NOT NULL,
    workers        integer NOT NULL,
    lag_seconds    double precision NOT NULL,
    waiting_events bigint NOT NULL,
    problem        text,
    started_at     timestamptz NOT NULL,
    last_seen      timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE fleet_replicas IS 'The replicas, each as it last said of itself.';
COMMENT ON COLUMN fleet_replicas.replica_id IS 'Names the state folder.';
COMMENT ON COLUMN fleet_replicas.host IS 'The machine''s name.';
COMMENT ON COLUMN fleet_replicas.version IS 'The version of interlock.';
COMMENT ON COLUMN fleet_replicas.schema_version IS 'The last migration that this version knows.';
COMMENT ON COLUMN fleet_replicas.policy IS 'The version of the policy in force there.';
COMMENT ON COLUMN fleet_replicas.keys IS 'A hash of the names of the keys in use there: replicas that agree have the same.';
COMMENT ON COLUMN fleet_replicas.workers IS 'How many worker processes it has.';
COMMENT ON COLUMN fleet_replicas.lag_seconds IS 'Age of the oldest event that waits to be shipped.';
COMMENT ON COLUMN fleet_replicas.waiting_events IS 'How many events wait.';
COMMENT ON COLUMN fleet_replicas.problem IS 'Why it is not ready, where it is not.';
COMMENT ON COLUMN fleet_replicas.started_at IS 'When it started.';
COMMENT ON COLUMN fleet_replicas.last_seen IS 'When it last said so, by the clock of the database.';

-- With the owner's rights: a proxy counts a change of pins without a right to write into the table itself.
CREATE FUNCTION interlock_tell_fleet() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE fleet SET revision = revision + 1 WHERE id = 1;
    PERFORM pg_notify('interlock_fleet', '');
    RETURN NULL;
END $$;
COMMENT ON FUNCTION interlock_tell_fleet IS 'Counts a change of what is shared, and tells every replica that listens.';
CREATE TRIGGER documents_changed AFTER INSERT OR UPDATE OR DELETE ON shared_documents
    FOR EACH STATEMENT EXECUTE FUNCTION interlock_tell_fleet();
CREATE TRIGGER pins_changed AFTER INSERT OR UPDATE OR DELETE ON shared_pins
    FOR EACH STATEMENT EXECUTE FUNCTION interlock_tell_fleet();

CREATE FUNCTION interlock_may_approve(of_table oid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = of_table), 'MEMBER')
        OR EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_admin' AND pg_has_role(current_user, oid, 'MEMBER'))
$$;
COMMENT ON FUNCTION interlock_may_approve IS 'Whether whoever asks may approve pins: the owner and members of interlock_admin may.';

CREATE FUNCTION interlock_guard_pins() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.generation <> OLD.generation + 1 OR NEW.name <> OLD.name THEN
        RAISE EXCEPTION 'pins of another generation' USING ERRCODE = 'serialization_failure';
    END IF;
    IF interlock_may_approve(TG_RELID) THEN
        RETURN NEW;
    END IF;
    IF NEW.approvals <> OLD.approvals OR (NEW.listing AND NOT OLD.listing)
        -- A tool that is known keeps what was approved of it, and one that has drifted stays so.
        OR EXISTS (
            SELECT 1 FROM jsonb_each(OLD.marks) AS was (tool, mark)
            WHERE NEW.marks -> was.tool IS NULL OR NEW.marks -> was.tool -> 0 IS DISTINCT FROM was.mark -> 0
                OR (was.mark -> 1 = 'true' AND NEW.marks -> was.tool -> 1 IS DISTINCT FROM 'true'))
        -- After the first list, one that is new is not approved.
        OR (NOT OLD.listing AND EXISTS (
            SELECT 1 FROM jsonb_each(NEW.marks) AS is_now (tool, mark)
            WHERE OLD.marks -> is_now.tool IS NULL AND is_now.mark -> 0 <> 'null' AND left(is_now.tool, 2) = 't:'))
    THEN
        RAISE EXCEPTION 'role % may not approve pins; members of interlock_admin may', current_user
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION interlock_guard_pins IS 'Lets a proxy add what it sees of a server''s tools, and approve nothing.';
CREATE TRIGGER pins_guarded BEFORE UPDATE ON shared_pins FOR EACH ROW EXECUTE FUNCTION interlock_guard_pins();

DO $$
BEGIN
    CREATE ROLE interlock_admin NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;  -- roles belong to the whole cluster
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'role interlock_admin is not there and may not be created; create it, then SELECT interlock_grant_roles()';
END $$;

-- What was granted before stays as it is: this adds to it.
ALTER FUNCTION interlock_grant_roles() RENAME TO interlock_grant_roles_but_fleet;
CREATE FUNCTION interlock_grant_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock_grant_roles_but_fleet();
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT SELECT ON fleet, shared_documents TO interlock_writer;
        GRANT SELECT, INSERT ON shared_pins, fleet_replicas TO interlock_writer;
        GRANT UPDATE ON shared_pins, fleet_replicas TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_admin') THEN
        GRANT SELECT ON interlock_migrations TO interlock_admin;
        GRANT SELECT, INSERT, UPDATE ON fleet, shared_documents, shared_pins, fleet_replicas TO interlock_admin;
        GRANT DELETE ON fleet_replicas TO interlock_admin;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON fleet_replicas TO interlock_reader;
    END IF;
END $$;

SELECT interlock_grant_roles();
