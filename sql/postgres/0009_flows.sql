-- Labels that follow data: which labelled results an agent was given, and keyed fingerprints of what they held.

CREATE TABLE flow_agents (
    agent       text COLLATE "C" PRIMARY KEY,
    last_number bigint NOT NULL
);

COMMENT ON TABLE flow_agents IS 'How many marks each agent has had. Its row is locked while one is added, so that numbers appear in their order.';
COMMENT ON COLUMN flow_agents.agent IS 'The agent.';
COMMENT ON COLUMN flow_agents.last_number IS 'The number of its last mark.';

CREATE TABLE flow_marks (
    agent        text COLLATE "C" NOT NULL,
    number       bigint NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('mark', 'cleared')),
    call_id      text NOT NULL,
    server       text NOT NULL,
    tool         text,
    labels       json NOT NULL,
    session      text,
    trace        text,
    shingles     bytea NOT NULL,
    value_prints bytea NOT NULL,
    complete     boolean NOT NULL,
    marked_at    timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    PRIMARY KEY (agent, number)
);

COMMENT ON TABLE flow_marks IS 'Labelled results that agents were given. Fingerprints are keyed; contents are not kept.';
COMMENT ON COLUMN flow_marks.agent IS 'The agent that was given the result.';
COMMENT ON COLUMN flow_marks.number IS 'Counts the marks of the agent.';
COMMENT ON COLUMN flow_marks.kind IS 'mark: a labelled result, or a call that a rule asks about; cleared: a person ended the marks before.';
COMMENT ON COLUMN flow_marks.call_id IS 'Audit id of the call that brought it; of a cleared, who cleared.';
COMMENT ON COLUMN flow_marks.server IS 'The MCP server or host that it came from.';
COMMENT ON COLUMN flow_marks.tool IS 'The tool that it came from.';
COMMENT ON COLUMN flow_marks.labels IS 'Its labels; of a cleared, the one that was cleared, or none for all.';
COMMENT ON COLUMN flow_marks.session IS 'The MCP session, where one is known.';
COMMENT ON COLUMN flow_marks.trace IS 'The W3C trace id, where one is known.';
COMMENT ON COLUMN flow_marks.shingles IS 'Keyed fingerprints of runs of text, eight bytes each.';
COMMENT ON COLUMN flow_marks.value_prints IS 'Keyed fingerprints of single values, two of eight bytes for each.';
COMMENT ON COLUMN flow_marks.complete IS 'Whether the fingerprints cover all of the result.';
COMMENT ON COLUMN flow_marks.marked_at IS 'When the result was given.';
COMMENT ON COLUMN flow_marks.expires_at IS 'From when on no flow asks about it.';

CREATE INDEX flow_marks_by_expiry ON flow_marks (expires_at);

CREATE TABLE flow_windows (
    agent      text COLLATE "C" PRIMARY KEY,
    sealed     bytea NOT NULL,
    expires_at timestamptz NOT NULL
);

COMMENT ON TABLE flow_windows IS 'The ends of what agents sent lately, encrypted: a text that is sent in pieces is compared as a whole.';
COMMENT ON COLUMN flow_windows.agent IS 'The agent.';
COMMENT ON COLUMN flow_windows.sealed IS 'Up to 64 letters and digits of each argument, encrypted with a key that the store does not have.';
COMMENT ON COLUMN flow_windows.expires_at IS 'When it is forgotten.';

-- What was granted before stays as it is: this adds to it.
ALTER FUNCTION interlock_grant_roles() RENAME TO interlock_grant_roles_but_flows;
CREATE FUNCTION interlock_grant_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock_grant_roles_but_flows();
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT SELECT, INSERT, DELETE ON flow_agents, flow_marks, flow_windows TO interlock_writer;
        GRANT UPDATE (last_number) ON flow_agents TO interlock_writer;
        GRANT UPDATE (shingles, value_prints, complete) ON flow_marks TO interlock_writer;
        GRANT UPDATE (sealed, expires_at) ON flow_windows TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON flow_agents, flow_marks TO interlock_reader;
    END IF;
END $$;

SELECT interlock_grant_roles();
