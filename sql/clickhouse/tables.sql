-- The audit trail in ClickHouse. {events} is the table, {calls} and {denied} its views; made by proxy/sinks/clickhouse_sink.py.
-- An event may be inserted twice; its row is then replaced by itself. Until parts are merged both are there: ask with FINAL.

-- name: events
CREATE TABLE IF NOT EXISTS {events} (
    event_id       String,
    time           Float64 CODEC(ZSTD(1)),
    ts             DateTime64(6, 'UTC') DEFAULT fromUnixTimestamp64Micro(toInt64(round(least(time, 9000000000.0) * 1000000))),
    kind           LowCardinality(String),
    call_id        Nullable(String),
    proposal_id    Nullable(String),
    agent          LowCardinality(Nullable(String)),
    server         LowCardinality(Nullable(String)),
    transport      LowCardinality(Nullable(String)),
    revision       LowCardinality(Nullable(String)),
    session        Nullable(String),
    jsonrpc_id     Nullable(String),
    method         LowCardinality(Nullable(String)),
    tool           LowCardinality(Nullable(String)),
    arguments_hash Nullable(String),
    decision       LowCardinality(Nullable(String)),
    reason         LowCardinality(Nullable(String)),
    rule           LowCardinality(Nullable(String)),
    policy_version LowCardinality(Nullable(String)),
    result_digest  Nullable(String),
    outcome        LowCardinality(Nullable(String)),
    authenticated  Nullable(Bool),
    is_error       Nullable(Bool),
    gate_ms        Nullable(Float64),
    upstream_ms    Nullable(Float64),
    total_ms       Nullable(Float64),
    result_size    Nullable(Int64),
    arguments      Nullable(String) CODEC(ZSTD(3)),
    rules          Nullable(String) CODEC(ZSTD(3)),
    shadow_rules   Nullable(String) CODEC(ZSTD(3)),
    redactions     Nullable(String) CODEC(ZSTD(3)),
    detail         Nullable(String) CODEC(ZSTD(3)),
    writer         LowCardinality(Nullable(String)),
    seq            Nullable(UInt64) CODEC(Delta, ZSTD(1)),
    chain          Nullable(String),
    body           String CODEC(ZSTD(3)),
    INDEX by_call call_id TYPE bloom_filter GRANULARITY 4
) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(ts) ORDER BY (kind, ts, event_id);

-- name: calls
CREATE VIEW IF NOT EXISTS {calls} AS
SELECT
    d.call_id AS call_id, d.event_id AS event_id, d.ts AS time, d.agent AS agent, d.authenticated AS authenticated,
    d.server AS server, d.transport AS transport, d.revision AS revision, d.session AS session,
    d.jsonrpc_id AS jsonrpc_id, d.method AS method, d.tool AS tool, d.arguments AS arguments,
    d.arguments_hash AS arguments_hash, d.decision AS decision, d.reason AS reason, d.rule AS rule, d.rules AS rules,
    d.shadow_rules AS shadow_rules, d.policy_version AS policy_version, d.redactions AS redactions,
    d.gate_ms AS gate_ms, c.upstream_ms AS upstream_ms, c.total_ms AS total_ms, c.result_digest AS result_digest,
    c.result_size AS result_size, c.is_error AS is_error, c.outcome AS outcome, c.completed_at AS completed_at
FROM (SELECT * FROM {events} FINAL WHERE kind = 'decided' AND method = 'tools/call') AS d
LEFT JOIN (
    SELECT
        call_id, argMax(upstream_ms, ts) AS upstream_ms, argMax(total_ms, ts) AS total_ms,
        argMax(result_digest, ts) AS result_digest, argMax(result_size, ts) AS result_size,
        argMax(is_error, ts) AS is_error, argMax(outcome, ts) AS outcome, toNullable(max(ts)) AS completed_at
    FROM {events} WHERE kind = 'completed' AND call_id IS NOT NULL GROUP BY call_id
) AS c ON c.call_id = d.call_id
SETTINGS join_use_nulls = 1;

-- name: denied
CREATE VIEW IF NOT EXISTS {denied} AS
SELECT call_id, event_id, ts AS time, agent, server, transport, method, tool, arguments, reason, rule, rules, policy_version
FROM {events} FINAL WHERE kind = 'decided' AND decision = 'deny';
