-- The audit trail: one row for each thing that happened, in partitions of a day (UTC).
-- `body` is the event exactly as it was recorded; every other column is read from it, for questions.

CREATE TABLE events (
    event_id       text NOT NULL CHECK (length(event_id) BETWEEN 1 AND 200),
    ts             timestamptz NOT NULL CHECK (ts >= to_timestamp(0) AND ts < to_timestamp(253402300800)),
    kind           text NOT NULL CHECK (length(kind) BETWEEN 1 AND 200),
    call_id        text,
    proposal_id    text,
    agent          text,
    authenticated  boolean,
    server         text,
    transport      text,
    revision       text,
    session        text,
    jsonrpc_id     text,
    method         text,
    tool           text,
    arguments      jsonb,
    arguments_hash text,
    decision       text,
    reason         text,
    rule           text,
    rules          jsonb,
    shadow_rules   jsonb,
    policy_version text,
    redactions     jsonb,
    gate_ms        double precision,
    upstream_ms    double precision,
    total_ms       double precision,
    result_digest  text,
    result_size    bigint,
    is_error       boolean,
    outcome        text,
    detail         jsonb,
    writer         text,
    seq            bigint,
    chain          text,
    body           text NOT NULL,
    PRIMARY KEY (event_id, ts)
) PARTITION BY RANGE (ts);

COMMENT ON TABLE events IS 'The audit trail, append-only. Names longer than 200 characters are cut in columns, never in body.';
COMMENT ON COLUMN events.event_id IS 'Names the event; shipped again, it is stored once.';
COMMENT ON COLUMN events.ts IS 'When it happened, by the clock of the proxy.';
COMMENT ON COLUMN events.kind IS 'What happened: decided, completed, proposed, approved, committed, observed and so on.';
COMMENT ON COLUMN events.call_id IS 'The call that it belongs to; the audit id that a refusal names.';
COMMENT ON COLUMN events.proposal_id IS 'The two-phase proposal that it belongs to.';
COMMENT ON COLUMN events.agent IS 'Who called.';
COMMENT ON COLUMN events.authenticated IS 'Whether a token proved who called.';
COMMENT ON COLUMN events.server IS 'The MCP server.';
COMMENT ON COLUMN events.transport IS 'http, sse, websocket or stdio.';
COMMENT ON COLUMN events.revision IS 'The MCP revision spoken.';
COMMENT ON COLUMN events.session IS 'The MCP session.';
COMMENT ON COLUMN events.jsonrpc_id IS 'The id of the JSON-RPC request, as text.';
COMMENT ON COLUMN events.method IS 'The JSON-RPC method.';
COMMENT ON COLUMN events.tool IS 'The tool, where the method is tools/call or the event speaks of one.';
COMMENT ON COLUMN events.arguments IS 'The arguments with secrets masked; the character NUL, which jsonb does not take, stands as U+FFFD.';
COMMENT ON COLUMN events.arguments_hash IS 'SHA-256 of the exact arguments.';
COMMENT ON COLUMN events.decision IS 'allow or deny.';
COMMENT ON COLUMN events.reason IS 'The reason code of the decision.';
COMMENT ON COLUMN events.rule IS 'The rule that decided.';
COMMENT ON COLUMN events.rules IS 'Every rule that matched.';
COMMENT ON COLUMN events.shadow_rules IS 'Rules in shadow mode that would have decided otherwise.';
COMMENT ON COLUMN events.policy_version IS 'Hash of the policy in force.';
COMMENT ON COLUMN events.redactions IS 'What was masked: detector and place, never the value.';
COMMENT ON COLUMN events.gate_ms IS 'Milliseconds until the decision.';
COMMENT ON COLUMN events.upstream_ms IS 'Milliseconds that the server took.';
COMMENT ON COLUMN events.total_ms IS 'Milliseconds of the whole call.';
COMMENT ON COLUMN events.result_digest IS 'SHA-256 of the result.';
COMMENT ON COLUMN events.result_size IS 'Bytes of the result.';
COMMENT ON COLUMN events.is_error IS 'Whether the tool said that it failed.';
COMMENT ON COLUMN events.outcome IS 'How it ended.';
COMMENT ON COLUMN events.detail IS 'What only this kind of event has.';
COMMENT ON COLUMN events.writer IS 'The local log that it came from.';
COMMENT ON COLUMN events.seq IS 'Its place in that log.';
COMMENT ON COLUMN events.chain IS 'The link of that log''s hash chain.';
COMMENT ON COLUMN events.body IS 'The event exactly as it was recorded: one JSON object.';

-- Where no day's partition is there (a clock that jumped, partitions not made in time), an event is still taken.
CREATE TABLE events_default PARTITION OF events DEFAULT;

CREATE INDEX events_by_time ON events (ts, event_id);
CREATE INDEX events_by_call ON events (call_id, ts);
CREATE INDEX events_by_proposal ON events (proposal_id) WHERE proposal_id IS NOT NULL;
-- With what is most often asked for inside; names are cut, so that even the longest fit an index.
CREATE INDEX events_calls_by_tool ON events (tool, ts, event_id) INCLUDE (server) WHERE kind = 'decided';
CREATE INDEX events_calls_by_agent ON events (agent, ts) INCLUDE (server, tool, decision) WHERE kind = 'decided';
CREATE INDEX events_denied ON events (ts, event_id) WHERE kind = 'decided' AND decision = 'deny';
CREATE INDEX events_redacted ON events (ts) WHERE redactions IS NOT NULL;
CREATE INDEX events_shadowed ON events (ts) WHERE shadow_rules IS NOT NULL;
CREATE INDEX events_by_arguments ON events USING gin (arguments jsonb_path_ops) WHERE kind = 'decided';

CREATE FUNCTION interlock_make_partitions(first date, last date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    today  date := (now() AT TIME ZONE 'UTC')::date;
    day    date;
    name   text;
    starts timestamptz;
    ends   timestamptz;
    made   integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('interlock_make_partitions'));
    -- Proxies may call this, so it does no more than they need.
    FOR day IN SELECT generate_series(greatest(first, today - 40), least(last, today + 40), interval '1 day')::date LOOP
        name := 'events_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(name) IS NOT NULL;
        starts := day::timestamp AT TIME ZONE 'UTC';
        ends := (day + 1)::timestamp AT TIME ZONE 'UTC';
        EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING ALL)', name);
        EXECUTE format(
            'WITH moved AS (DELETE FROM events_default WHERE ts >= %L AND ts < %L RETURNING *) '
            'INSERT INTO %I SELECT * FROM moved', starts, ends, name);
        EXECUTE format('ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, starts, ends);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
COMMENT ON FUNCTION interlock_make_partitions IS
    'Make the partitions of these days, at most 40 days from today, and move there what waits in events_default; '
    'gives how many were made.';

CREATE FUNCTION interlock_drop_events(before timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    first_kept timestamptz := date_trunc('day', before AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    part       record;
    names      text[] := '{}';
    rows       bigint;
    gone       bigint := 0;
BEGIN
    FOR part IN
        SELECT c.relname AS name, to_date(substr(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' AS starts
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_\d{8}$'
    LOOP
        CONTINUE WHEN part.starts >= first_kept;
        EXECUTE format('SELECT count(*) FROM %I', part.name) INTO rows;
        gone := gone + rows;
        names := names || format('%I', part.name);
    END LOOP;
    DELETE FROM events_default WHERE ts < before;
    GET DIAGNOSTICS rows = ROW_COUNT;
    gone := gone + rows;
    DELETE FROM events WHERE ts >= first_kept AND ts < before;
    GET DIAGNOSTICS rows = ROW_COUNT;
    -- Last, since from here on nobody can write until it is done.
    IF names <> '{}' THEN
        EXECUTE 'DROP TABLE ' || array_to_string(names, ', ');
    END IF;
    RETURN gone + rows;
END $$;
COMMENT ON FUNCTION interlock_drop_events IS
    'Drop the partitions that end before this time and delete what else is older; gives how many events are gone.';

CREATE VIEW tool_calls AS
SELECT
    d.call_id, d.event_id, d.ts AS time, d.agent, d.authenticated, d.server, d.transport, d.revision, d.session,
    d.jsonrpc_id, d.method, d.tool, d.arguments, d.arguments_hash, d.decision, d.reason, d.rule, d.rules,
    d.shadow_rules, d.policy_version, d.redactions, d.gate_ms, c.upstream_ms, c.total_ms, c.result_digest,
    c.result_size, c.is_error, c.outcome, c.ts AS completed_at
FROM events d
LEFT JOIN LATERAL (
    -- The bounds spare a look into every partition there is.
    SELECT e.* FROM events e
    WHERE e.call_id = d.call_id AND e.kind = 'completed'
      AND e.ts > d.ts - interval '1 day' AND e.ts < d.ts + interval '7 days'
    ORDER BY e.ts DESC LIMIT 1
) c ON true
WHERE d.kind = 'decided' AND d.method = 'tools/call';

COMMENT ON VIEW tool_calls IS 'One row for each tool call: what was decided, and how it ended if it has.';
COMMENT ON COLUMN tool_calls.call_id IS 'Names the call; the audit id that a refusal names.';
COMMENT ON COLUMN tool_calls.event_id IS 'The event of the decision.';
COMMENT ON COLUMN tool_calls.time IS 'When it was decided.';
COMMENT ON COLUMN tool_calls.agent IS 'Who called.';
COMMENT ON COLUMN tool_calls.authenticated IS 'Whether a token proved who called.';
COMMENT ON COLUMN tool_calls.server IS 'The MCP server.';
COMMENT ON COLUMN tool_calls.transport IS 'http, sse, websocket or stdio.';
COMMENT ON COLUMN tool_calls.revision IS 'The MCP revision spoken.';
COMMENT ON COLUMN tool_calls.session IS 'The MCP session.';
COMMENT ON COLUMN tool_calls.jsonrpc_id IS 'The id of the JSON-RPC request, as text.';
COMMENT ON COLUMN tool_calls.method IS 'tools/call.';
COMMENT ON COLUMN tool_calls.tool IS 'The tool.';
COMMENT ON COLUMN tool_calls.arguments IS 'The arguments with secrets masked.';
COMMENT ON COLUMN tool_calls.arguments_hash IS 'SHA-256 of the exact arguments.';
COMMENT ON COLUMN tool_calls.decision IS 'allow or deny.';
COMMENT ON COLUMN tool_calls.reason IS 'The reason code of the decision.';
COMMENT ON COLUMN tool_calls.rule IS 'The rule that decided.';
COMMENT ON COLUMN tool_calls.rules IS 'Every rule that matched.';
COMMENT ON COLUMN tool_calls.shadow_rules IS 'Rules in shadow mode that would have decided otherwise.';
COMMENT ON COLUMN tool_calls.policy_version IS 'Hash of the policy in force.';
COMMENT ON COLUMN tool_calls.redactions IS 'What was masked in the arguments: detector and place.';
COMMENT ON COLUMN tool_calls.gate_ms IS 'Milliseconds until the decision.';
COMMENT ON COLUMN tool_calls.upstream_ms IS 'Milliseconds that the server took.';
COMMENT ON COLUMN tool_calls.total_ms IS 'Milliseconds of the whole call.';
COMMENT ON COLUMN tool_calls.result_digest IS 'SHA-256 of the result.';
COMMENT ON COLUMN tool_calls.result_size IS 'Bytes of the result.';
COMMENT ON COLUMN tool_calls.is_error IS 'Whether the tool said that it failed.';
COMMENT ON COLUMN tool_calls.outcome IS 'How it ended; null where it was denied or is not known to have ended.';
COMMENT ON COLUMN tool_calls.completed_at IS 'When it ended.';

CREATE VIEW denied_calls AS
SELECT
    call_id, event_id, ts AS time, agent, server, transport, method, tool, arguments, reason, rule, rules, policy_version
FROM events WHERE kind = 'decided' AND decision = 'deny';

COMMENT ON VIEW denied_calls IS 'Everything that a client asked for and was refused: tool calls and other methods.';
COMMENT ON COLUMN denied_calls.call_id IS 'Names the call; the audit id that the refusal named.';
COMMENT ON COLUMN denied_calls.event_id IS 'The event of the decision.';
COMMENT ON COLUMN denied_calls.time IS 'When it was denied.';
COMMENT ON COLUMN denied_calls.agent IS 'Who called.';
COMMENT ON COLUMN denied_calls.server IS 'The MCP server.';
COMMENT ON COLUMN denied_calls.transport IS 'http, sse, websocket or stdio.';
COMMENT ON COLUMN denied_calls.method IS 'The JSON-RPC method.';
COMMENT ON COLUMN denied_calls.tool IS 'The tool, for tools/call.';
COMMENT ON COLUMN denied_calls.arguments IS 'The arguments with secrets masked.';
COMMENT ON COLUMN denied_calls.reason IS 'The reason code.';
COMMENT ON COLUMN denied_calls.rule IS 'The rule that denied, if it was a rule.';
COMMENT ON COLUMN denied_calls.rules IS 'Every rule that matched.';
COMMENT ON COLUMN denied_calls.policy_version IS 'Hash of the policy in force.';

CREATE VIEW two_phase_ledger AS
SELECT
    e.proposal_id,
    min(e.ts) AS proposed_at,
    max(e.agent) AS agent,
    max(e.server) AS server,
    max(e.tool) AS tool,
    max(e.rule) AS rule,
    max(e.arguments_hash) AS arguments_hash,
    max(e.detail ->> 'approval') AS approval,
    max(coalesce(e.detail ->> 'composite_score', e.detail ->> 'score')) AS composite_score,
    max(e.ts) FILTER (WHERE e.kind = 'approved') AS approved_at,
    max(e.ts) FILTER (WHERE e.kind = 'rejected') AS rejected_at,
    max(e.detail ->> 'operator') FILTER (WHERE e.kind IN ('approved', 'rejected')) AS operator,
    max(e.ts) FILTER (WHERE e.kind = 'committed') AS committed_at,
    max(e.call_id) FILTER (WHERE e.kind = 'committed') AS commit_call_id,
    (array_agg(e.kind ORDER BY e.ts DESC, e.event_id DESC))[1] AS last_event
FROM events e WHERE e.proposal_id IS NOT NULL
GROUP BY e.proposal_id;

COMMENT ON VIEW two_phase_ledger IS 'One row for each two-phase proposal, from the audit trail: it stays when the proposal itself is swept.';
COMMENT ON COLUMN two_phase_ledger.proposal_id IS 'The proposal.';
COMMENT ON COLUMN two_phase_ledger.proposed_at IS 'When it was first proposed.';
COMMENT ON COLUMN two_phase_ledger.agent IS 'Who proposed it.';
COMMENT ON COLUMN two_phase_ledger.server IS 'The MCP server.';
COMMENT ON COLUMN two_phase_ledger.tool IS 'The tool.';
COMMENT ON COLUMN two_phase_ledger.rule IS 'The two_phase rule that asked for it.';
COMMENT ON COLUMN two_phase_ledger.arguments_hash IS 'SHA-256 of the exact arguments.';
COMMENT ON COLUMN two_phase_ledger.approval IS 'auto or human.';
COMMENT ON COLUMN two_phase_ledger.composite_score IS 'The score, as text.';
COMMENT ON COLUMN two_phase_ledger.approved_at IS 'When an operator approved it.';
COMMENT ON COLUMN two_phase_ledger.rejected_at IS 'When an operator rejected it.';
COMMENT ON COLUMN two_phase_ledger.operator IS 'Who approved or rejected it.';
COMMENT ON COLUMN two_phase_ledger.committed_at IS 'When it was carried out.';
COMMENT ON COLUMN two_phase_ledger.commit_call_id IS 'The call that carried it out.';
COMMENT ON COLUMN two_phase_ledger.last_event IS 'The kind of the last event of it.';

CREATE VIEW server_behaviour AS
SELECT
    server, tool, detail ->> 'capability' AS capability, count(*) AS observations,
    count(DISTINCT call_id) AS calls, min(ts) AS first_seen, max(ts) AS last_seen
FROM events WHERE kind = 'observed'
GROUP BY server, tool, detail ->> 'capability';

COMMENT ON VIEW server_behaviour IS 'What traced servers were seen doing, by tool and capability.';
COMMENT ON COLUMN server_behaviour.server IS 'The MCP server.';
COMMENT ON COLUMN server_behaviour.tool IS 'The tool whose call it was seen in; null for start-up and in between.';
COMMENT ON COLUMN server_behaviour.capability IS 'What it did: fs.read, net.connect, proc.exec and so on.';
COMMENT ON COLUMN server_behaviour.observations IS 'How often.';
COMMENT ON COLUMN server_behaviour.calls IS 'In how many calls.';
COMMENT ON COLUMN server_behaviour.first_seen IS 'When first.';
COMMENT ON COLUMN server_behaviour.last_seen IS 'When last.';

CREATE INDEX events_observed ON events (server, tool, ts) WHERE kind = 'observed';

-- What a definer's function runs on is decided here, not by its caller.
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION interlock_make_partitions SET search_path = %I, pg_temp', current_schema());
END $$;

SELECT interlock_make_partitions((now() AT TIME ZONE 'UTC')::date - 1, (now() AT TIME ZONE 'UTC')::date + 14);
