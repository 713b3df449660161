-- What replicas show each other of calls under way: ids in use, calls whose answer may come to another replica, and
-- where servers speak MCP. Nothing here outlives a crash of the database, and nothing has to.

CREATE UNLOGGED TABLE call_owners (
    owner   text COLLATE "C" PRIMARY KEY,
    replica text NOT NULL,
    seen    timestamptz NOT NULL
);

COMMENT ON TABLE call_owners IS 'Workers of every replica that are alive: each says so every second.';
COMMENT ON COLUMN call_owners.owner IS 'Names one process.';
COMMENT ON COLUMN call_owners.replica IS 'Names the state folder that it belongs to.';
COMMENT ON COLUMN call_owners.seen IS 'When it last said so, by the clock of the database.';

CREATE UNLOGGED TABLE call_claims (
    key   bytea PRIMARY KEY,
    owner text COLLATE "C" NOT NULL
);

COMMENT ON TABLE call_claims IS 'Ids of sessions that are in use. A claim ends with the process that made it.';
COMMENT ON COLUMN call_claims.key IS 'A hash of server, session and id.';
COMMENT ON COLUMN call_claims.owner IS 'The process that forwards the call.';

CREATE UNLOGGED TABLE replica_calls (
    number     bigint GENERATED ALWAYS AS IDENTITY,
    call_id    text COLLATE "C" PRIMARY KEY,
    server     text NOT NULL,
    session    text NOT NULL,
    id         text NOT NULL,
    is_open    boolean NOT NULL,
    posted_at  timestamptz NOT NULL,
    body       text NOT NULL,
    seal       bytea NOT NULL
);
CREATE INDEX replica_calls_by_session ON replica_calls (server, session, id);
CREATE INDEX replica_calls_by_number ON replica_calls (number);

COMMENT ON TABLE replica_calls IS 'Calls whose answer may come to another replica. Without arguments.';
COMMENT ON COLUMN replica_calls.number IS 'The order in which they were posted.';
COMMENT ON COLUMN replica_calls.call_id IS 'Audit id of the call.';
COMMENT ON COLUMN replica_calls.server IS 'The server.';
COMMENT ON COLUMN replica_calls.session IS 'The session.';
COMMENT ON COLUMN replica_calls.id IS 'The JSON-RPC id, as JSON.';
COMMENT ON COLUMN replica_calls.is_open IS 'Whether no replica has seen its answer.';
COMMENT ON COLUMN replica_calls.posted_at IS 'When it was posted; an old one is deleted.';
COMMENT ON COLUMN replica_calls.body IS 'The call as JSON.';
COMMENT ON COLUMN replica_calls.seal IS 'An HMAC over the row, by a key that the replicas share and the database does not have.';

CREATE UNLOGGED TABLE replica_facts (
    number    bigint GENERATED ALWAYS AS IDENTITY,
    kind      text NOT NULL,
    name      text NOT NULL,
    path      text NOT NULL,
    owner     text NOT NULL,
    learnt_at timestamptz NOT NULL,
    PRIMARY KEY (kind, name, path)
);
CREATE INDEX replica_facts_by_number ON replica_facts (number);

COMMENT ON TABLE replica_facts IS 'What replicas have learnt of servers.';
COMMENT ON COLUMN replica_facts.number IS 'The order in which it was learnt.';
COMMENT ON COLUMN replica_facts.kind IS 'legacy or mcp: an endpoint; credential: who got one first.';
COMMENT ON COLUMN replica_facts.name IS 'The server, or a keyed hash of the credential.';
COMMENT ON COLUMN replica_facts.path IS 'The path of the endpoint.';
COMMENT ON COLUMN replica_facts.owner IS 'The agent whose call showed it, or the site that got the credential.';
COMMENT ON COLUMN replica_facts.learnt_at IS 'When; it is forgotten a week later.';

-- What was granted before stays as it is: this adds to it.
ALTER FUNCTION interlock_grant_roles() RENAME TO interlock_grant_roles_but_calls;
CREATE FUNCTION interlock_grant_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock_grant_roles_but_calls();
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON call_owners, call_claims, replica_calls, replica_facts TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON call_owners, replica_calls, replica_facts TO interlock_reader;
    END IF;
END $$;

SELECT interlock_grant_roles();
