-- What reports over days and weeks need, summed up by the hour, so that they need not read every event. Exact, as event_counts is: counted
-- in the transaction that adds the events, only those that are new, each in the hour of its own time, however late it comes.
-- Rows are only added, and summed up in passing.

CREATE TABLE event_sums (
    hour      timestamptz NOT NULL,
    what      text NOT NULL,
    agent     text,
    server    text,
    tool      text,
    reason    text,
    rule      text,
    events    bigint NOT NULL,
    denied    bigint NOT NULL DEFAULT 0,
    errors    bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0,
    timed     bigint NOT NULL DEFAULT 0,
    total_ms  double precision NOT NULL DEFAULT 0,
    max_ms    double precision,
    first     timestamptz NOT NULL,
    last      timestamptz NOT NULL
);

COMMENT ON TABLE event_sums IS 'Sums over events by the hour (UTC), for reports. Add up rows that are alike.';
COMMENT ON COLUMN event_sums.hour IS 'When the hour began; the day, for day_agent and day_tool.';
COMMENT ON COLUMN event_sums.what IS 'all: every event; tool: tools/call by server and tool; denial: by agent, reason and rule; day_agent, day_tool: what was decided in a day (UTC), by agent and by tool.';
COMMENT ON COLUMN event_sums.agent IS 'Who called; of denial and day_agent.';
COMMENT ON COLUMN event_sums.server IS 'The MCP server; of tool.';
COMMENT ON COLUMN event_sums.tool IS 'The tool; of tool and day_tool.';
COMMENT ON COLUMN event_sums.reason IS 'Why it was refused; of denial.';
COMMENT ON COLUMN event_sums.rule IS 'The rule that refused; of denial.';
COMMENT ON COLUMN event_sums.events IS 'How many events; of tool, those that were decided.';
COMMENT ON COLUMN event_sums.denied IS 'How many of them were denied.';
COMMENT ON COLUMN event_sums.errors IS 'How many calls ended with an error.';
COMMENT ON COLUMN event_sums.completed IS 'How many calls ended.';
COMMENT ON COLUMN event_sums.timed IS 'How many of those say how long they took.';
COMMENT ON COLUMN event_sums.total_ms IS 'How long these took together, in milliseconds.';
COMMENT ON COLUMN event_sums.max_ms IS 'The longest of them.';
COMMENT ON COLUMN event_sums.first IS 'The time of the first event.';
COMMENT ON COLUMN event_sums.last IS 'The time of the last event.';

CREATE INDEX event_sums_by_hour ON event_sums (what, hour);

CREATE TABLE event_findings (
    ts          timestamptz NOT NULL,
    call_id     text,
    agent       text,
    server      text,
    tool        text,
    detector    text,
    record_only boolean NOT NULL
);

COMMENT ON TABLE event_findings IS 'What detectors found, one row for each finding, never the value. Made of the events as they are added.';
COMMENT ON COLUMN event_findings.ts IS 'The time of the event.';
COMMENT ON COLUMN event_findings.call_id IS 'The call.';
COMMENT ON COLUMN event_findings.agent IS 'Who called.';
COMMENT ON COLUMN event_findings.server IS 'The MCP server.';
COMMENT ON COLUMN event_findings.tool IS 'The tool.';
COMMENT ON COLUMN event_findings.detector IS 'What found it.';
COMMENT ON COLUMN event_findings.record_only IS 'Whether nothing but the record was masked.';

CREATE INDEX event_findings_by_time ON event_findings (ts);

CREATE OR REPLACE FUNCTION interlock_count_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO event_counts
    SELECT date_trunc('hour', ts, 'UTC'), kind, agent, server, tool, decision, count(*)
    FROM added WHERE kind = 'decided'
    GROUP BY 1, 2, 3, 4, 5, 6;

    INSERT INTO event_sums (hour, what, events, first, last)
    SELECT date_trunc('hour', ts, 'UTC'), 'all', count(*), min(ts), max(ts) FROM added GROUP BY 1;

    INSERT INTO event_sums
    SELECT
        date_trunc('hour', ts, 'UTC'), 'tool', NULL, server, tool, NULL, NULL,
        count(*) FILTER (WHERE kind = 'decided'), count(*) FILTER (WHERE kind = 'decided' AND decision = 'deny'),
        count(*) FILTER (WHERE kind = 'completed' AND is_error), count(*) FILTER (WHERE kind = 'completed'),
        count(total_ms) FILTER (WHERE kind = 'completed'), coalesce(sum(total_ms) FILTER (WHERE kind = 'completed'), 0),
        max(total_ms) FILTER (WHERE kind = 'completed'), min(ts), max(ts)
    FROM added WHERE method = 'tools/call' AND kind IN ('decided', 'completed')
    GROUP BY 1, server, tool;

    INSERT INTO event_sums (hour, what, agent, tool, reason, rule, events, denied, first, last)
    SELECT date_trunc('hour', ts, 'UTC'), 'denial', agent, NULL, reason, rule, count(*), count(*), min(ts), max(ts)
    FROM added WHERE kind = 'decided' AND decision = 'deny'
    GROUP BY 1, agent, reason, rule
    UNION ALL
    SELECT
        date_trunc('day', ts, 'UTC'), CASE WHEN grouping(tool) = 1 THEN 'day_agent' ELSE 'day_tool' END, agent, tool, NULL, NULL,
        count(*), count(*) FILTER (WHERE decision = 'deny'), min(ts), max(ts)
    FROM added WHERE kind = 'decided'
    GROUP BY 1, GROUPING SETS ((agent), (tool));

    INSERT INTO event_findings
    SELECT ts, call_id, agent, server, tool, found.value ->> 'detector', coalesce(found.value @> '{"record_only": true}', false)
    FROM added, jsonb_array_elements(CASE jsonb_typeof(redactions) WHEN 'array' THEN redactions END) AS found
    WHERE redactions IS NOT NULL;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_sum_hours(since timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
DECLARE
    rows bigint := 0;
    more bigint;
BEGIN
    -- Whoever comes while another does it has nothing to do.
    IF NOT pg_try_advisory_xact_lock(hashtext('interlock_sum_counts')) THEN
        RETURN 0;
    END IF;
    -- Only hours with many rows for few sums; late events make a few more, which the next time takes.
    WITH often AS (
        SELECT hour FROM event_counts WHERE hour >= since
        GROUP BY hour HAVING count(*) > 2 * count(DISTINCT (kind, agent, server, tool, decision))
    ), gone AS (
        DELETE FROM event_counts WHERE hour IN (SELECT hour FROM often) RETURNING *
    )
    INSERT INTO event_counts
    SELECT hour, kind, agent, server, tool, decision, sum(events) FROM gone GROUP BY 1, 2, 3, 4, 5, 6;
    GET DIAGNOSTICS rows = ROW_COUNT;
    WITH often AS (
        SELECT what, hour FROM event_sums WHERE hour >= date_trunc('day', since, 'UTC')
        GROUP BY what, hour HAVING count(*) > 2 * count(DISTINCT (agent, server, tool, reason, rule))
    ), gone AS (
        DELETE FROM event_sums WHERE (what, hour) IN (SELECT what, hour FROM often) RETURNING *
    )
    INSERT INTO event_sums
    SELECT
        hour, what, agent, server, tool, reason, rule, sum(events), sum(denied), sum(errors), sum(completed), sum(timed),
        sum(total_ms), max(max_ms), min(first), max(last)
    FROM gone GROUP BY 1, 2, 3, 4, 5, 6, 7;
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN rows + more;
END $$;
COMMENT ON FUNCTION interlock_sum_hours IS 'Sum up the counts since a time; gives how many rows there are in their place. Proxies call it in passing.';
REVOKE EXECUTE ON FUNCTION interlock_sum_hours(timestamptz) FROM PUBLIC;

CREATE OR REPLACE FUNCTION interlock_sum_counts() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
    SELECT interlock_sum_hours('-infinity')
$$;

CREATE FUNCTION interlock_make_sums(since timestamptz, until timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO event_sums (hour, what, events, first, last)
    SELECT date_trunc('hour', ts, 'UTC'), 'all', count(*), min(ts), max(ts) FROM events WHERE ts >= since AND ts < until GROUP BY 1;
    INSERT INTO event_sums
    SELECT
        date_trunc('hour', ts, 'UTC'), 'tool', NULL, server, tool, NULL, NULL,
        count(*) FILTER (WHERE kind = 'decided'), count(*) FILTER (WHERE kind = 'decided' AND decision = 'deny'),
        count(*) FILTER (WHERE kind = 'completed' AND is_error), count(*) FILTER (WHERE kind = 'completed'),
        count(total_ms) FILTER (WHERE kind = 'completed'), coalesce(sum(total_ms) FILTER (WHERE kind = 'completed'), 0),
        max(total_ms) FILTER (WHERE kind = 'completed'), min(ts), max(ts)
    FROM events WHERE method = 'tools/call' AND kind IN ('decided', 'completed') AND ts >= since AND ts < until
    GROUP BY 1, server, tool;
    INSERT INTO event_sums (hour, what, agent, reason, rule, events, denied, first, last)
    SELECT date_trunc('hour', ts, 'UTC'), 'denial', agent, reason, rule, count(*), count(*), min(ts), max(ts)
    FROM events WHERE kind = 'decided' AND decision = 'deny' AND ts >= since AND ts < until
    GROUP BY 1, agent, reason, rule;
    INSERT INTO event_findings
    SELECT ts, call_id, agent, server, tool, found.value ->> 'detector', coalesce(found.value @> '{"record_only": true}', false)
    FROM events, jsonb_array_elements(CASE jsonb_typeof(redactions) WHEN 'array' THEN redactions END) AS found
    WHERE redactions IS NOT NULL AND ts >= since AND ts < until;
END $$;
COMMENT ON FUNCTION interlock_make_sums IS 'Sum up the events between two times, as they are now.';
REVOKE EXECUTE ON FUNCTION interlock_make_sums(timestamptz, timestamptz) FROM PUBLIC;

CREATE FUNCTION interlock_make_day_sums(until timestamptz) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO event_sums (hour, what, agent, tool, events, denied, first, last)
    SELECT
        date_trunc('day', hour, 'UTC'), CASE WHEN grouping(tool) = 1 THEN 'day_agent' ELSE 'day_tool' END, agent, tool,
        sum(events), coalesce(sum(events) FILTER (WHERE decision = 'deny'), 0), min(hour), max(hour)
    FROM event_counts WHERE kind = 'decided' AND hour < until
    GROUP BY 1, GROUPING SETS ((agent), (tool));
$$;
COMMENT ON FUNCTION interlock_make_day_sums IS 'Sum up the counts before a time by day.';
REVOKE EXECUTE ON FUNCTION interlock_make_day_sums(timestamptz) FROM PUBLIC;

CREATE OR REPLACE FUNCTION interlock_recount_events(before timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    until timestamptz := date_trunc('hour', before, 'UTC') + interval '1 hour';
    day_end timestamptz := date_trunc('day', before, 'UTC') + interval '1 day';
BEGIN
    -- Nobody counts meanwhile: what is added between the two statements would be counted twice, or not at all.
    LOCK TABLE event_counts, event_sums, event_findings IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM event_counts WHERE hour < until;
    INSERT INTO event_counts
    SELECT date_trunc('hour', ts, 'UTC'), kind, agent, server, tool, decision, count(*)
    FROM events WHERE ts < until AND kind = 'decided'
    GROUP BY 1, 2, 3, 4, 5, 6;
    DELETE FROM event_sums WHERE hour < until AND what NOT IN ('day_agent', 'day_tool');
    DELETE FROM event_findings WHERE ts < until;
    PERFORM interlock_make_sums('-infinity', until);
    DELETE FROM event_sums WHERE hour < day_end AND what IN ('day_agent', 'day_tool');
    PERFORM interlock_make_day_sums(day_end);
END $$;

-- What is added meanwhile waits: else it would be counted by nobody.
LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE;
SELECT interlock_make_sums('-infinity', 'infinity');
SELECT interlock_make_day_sums('infinity');

ALTER FUNCTION interlock_grant_roles() RENAME TO interlock_grant_roles_but_sums;
CREATE FUNCTION interlock_grant_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock_grant_roles_but_sums();
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT EXECUTE ON FUNCTION interlock_sum_hours(timestamptz) TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON event_sums, event_findings TO interlock_reader;
    END IF;
END $$;

SELECT interlock_grant_roles();
