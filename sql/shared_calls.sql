-- What workers of one proxy show each other (docs/how-it-works.md): made anew at each start, and never durable.
-- A call that may be answered on a stream of another worker, as JSON.
CREATE TABLE calls (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    call_id TEXT NOT NULL UNIQUE,
    server  TEXT NOT NULL,
    session TEXT NOT NULL,
    id      TEXT NOT NULL,
    is_open INTEGER NOT NULL,
    body    TEXT NOT NULL
);
CREATE INDEX calls_by_session ON calls (server, session, id);

-- Where legacy servers (HTTP+SSE, 2024-11-05) take messages whose answers come on a stream. Who adds one changes the
-- file `generation` beside this one.
CREATE TABLE endpoints (
    server TEXT NOT NULL,
    path   TEXT NOT NULL,
    PRIMARY KEY (server, path)
) WITHOUT ROWID;

-- Where servers answered as MCP, and the agent whose call they answered.
CREATE TABLE mcp_endpoints (
    server TEXT NOT NULL,
    path   TEXT NOT NULL,
    agent  TEXT NOT NULL,
    PRIMARY KEY (server, path)
) WITHOUT ROWID;
CREATE INDEX mcp_endpoints_by_agent ON mcp_endpoints (agent);

-- Which site got which credential first: a keyed hash, never the credential.
CREATE TABLE credentials (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    digest TEXT NOT NULL UNIQUE,
    owner  TEXT NOT NULL
);
