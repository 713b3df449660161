-- Ready questions to the audit trail in Postgres, for psql and dashboards; interlock_reader may ask them all.
-- Each is one statement behind a line with its name.

-- name: who_called_what_yesterday
SELECT agent, server, tool, sum(events)::bigint AS calls, coalesce(sum(events) FILTER (WHERE decision = 'deny'), 0)::bigint AS denied
FROM event_counts
WHERE kind = 'decided' AND tool IS NOT NULL
  AND hour >= date_trunc('day', now()) - interval '1 day' AND hour < date_trunc('day', now())
GROUP BY agent, server, tool
ORDER BY calls DESC, agent, server, tool;

-- name: denials_by_rule
-- Of the last seven days, by whole hours.
SELECT coalesce(rule, '(' || reason || ')') AS rule, reason, sum(events)::bigint AS denials, count(DISTINCT agent) AS agents,
    max(last) AS last
FROM event_sums
WHERE what = 'denial' AND hour > now() - interval '7 days'
GROUP BY 1, 2
ORDER BY denials DESC, 1;

-- name: latest_denials
SELECT time, agent, server, coalesce(tool, method) AS what, reason, rule, arguments
FROM denied_calls
ORDER BY time DESC, event_id DESC
LIMIT 50;

-- name: secrets_caught_by_tool
-- only_in_record: those that no rule asked for; the server, if the call was allowed, got them as they were.
SELECT server, tool, detector, sum(times)::bigint AS times, count(call_id) AS calls, sum(only_in_record)::bigint AS only_in_record
FROM (
    SELECT server, tool, detector, call_id, count(*) AS times, count(*) FILTER (WHERE record_only) AS only_in_record
    FROM event_findings
    WHERE ts > now() - interval '7 days'
    GROUP BY 1, 2, 3, 4
) AS by_call
GROUP BY 1, 2, 3
ORDER BY times DESC, 1, 2, 3;

-- name: commits_without_approval
SELECT proposal_id, agent, server, tool, rule, proposed_at, committed_at, commit_call_id
FROM two_phase_ledger
WHERE committed_at IS NOT NULL AND approved_at IS NULL AND approval IS DISTINCT FROM 'auto'
ORDER BY committed_at DESC;

-- name: slowest_tools
SELECT server, tool, count(*) AS calls, round(avg(total_ms)::numeric, 1) AS mean_ms,
    round((percentile_cont(0.95) WITHIN GROUP (ORDER BY total_ms))::numeric, 1) AS p95_ms, max(total_ms) AS max_ms
FROM events
WHERE kind = 'completed' AND method = 'tools/call' AND ts > now() - interval '1 hour'
GROUP BY server, tool
ORDER BY p95_ms DESC NULLS LAST
LIMIT 20;

-- name: new_tools_this_week
-- Tools called in the last seven days and never before; first_called is the hour.
SELECT server, tool, min(hour) AS first_called, sum(events)::bigint AS calls
FROM event_counts
WHERE kind = 'decided' AND tool IS NOT NULL
GROUP BY server, tool
HAVING min(hour) > now() - interval '7 days'
ORDER BY first_called, server, tool;

-- name: calls_that_never_ended
-- Of the last two hours: a call that has no end after five minutes. Each event is read once, in the order of time: to look
-- up the end of each call would read the index a hundred thousand times in a busy hour.
SELECT d.ts AS time, d.call_id, d.agent, d.server, d.tool
FROM (
    SELECT call_id, max(ts) AS ts
    FROM events
    WHERE ts > now() - interval '2 hours'
      AND (kind = 'completed' OR kind = 'decided' AND method = 'tools/call' AND decision = 'allow')
    GROUP BY call_id
    HAVING count(*) FILTER (WHERE kind = 'completed') = 0 AND max(ts) < now() - interval '5 minutes'
    ORDER BY 2 DESC
    LIMIT 50
) AS unended
JOIN events d ON d.call_id = unended.call_id AND d.ts = unended.ts AND d.kind = 'decided'
ORDER BY 1 DESC;

-- name: shadow_rules_that_would_have_matched
SELECT shadow AS rule, count(*) AS calls, count(DISTINCT tool) AS tools, max(ts) AS last
FROM events, jsonb_array_elements_text(shadow_rules) AS shadow
WHERE kind = 'decided' AND shadow_rules IS NOT NULL AND ts > now() - interval '7 days'
GROUP BY 1
ORDER BY calls DESC;

-- name: who_approved_what
SELECT ts AS time, kind AS what, detail ->> 'operator' AS operator, agent, server, tool, proposal_id,
    detail ->> 'reason' AS reason
FROM events
WHERE kind IN ('approved', 'rejected') AND ts > now() - interval '7 days'
ORDER BY ts DESC
LIMIT 200;

-- name: first_use_by_agent
-- Tools that an agent called today, and not in the thirty days before; first_called is the hour.
SELECT agent, server, tool, first_called, calls
FROM (
    SELECT agent, server, tool, min(hour) AS first_called, sum(events)::bigint AS calls
    FROM event_counts
    WHERE kind = 'decided' AND tool IS NOT NULL AND hour >= date_trunc('day', now())
    GROUP BY agent, server, tool
) AS today
WHERE NOT EXISTS (
    SELECT 1 FROM event_counts b
    WHERE b.kind = 'decided' AND b.agent IS NOT DISTINCT FROM today.agent AND b.tool = today.tool AND b.server IS NOT DISTINCT FROM today.server
      AND b.hour >= date_trunc('day', now()) - interval '30 days' AND b.hour < date_trunc('day', now())
  )
ORDER BY first_called, agent, server, tool;

-- name: daily_volume
-- Days are of UTC.
SELECT hour AS day, coalesce(sum(events) FILTER (WHERE what = 'day_agent'), 0)::bigint AS calls,
    coalesce(sum(denied) FILTER (WHERE what = 'day_agent'), 0)::bigint AS denied,
    count(DISTINCT agent) AS agents, count(DISTINCT tool) AS tools
FROM event_sums
WHERE what IN ('day_agent', 'day_tool') AND hour >= date_trunc('day', now(), 'UTC') - interval '7 days'
GROUP BY hour
ORDER BY hour;

-- name: secrets_by_host
SELECT host, detector, sum(times)::bigint AS times, count(agent) AS agents, max(last) AS last
FROM (
    SELECT server AS host, detector, agent, count(*) AS times, max(ts) AS last
    FROM event_findings
    WHERE ts > now() - interval '7 days'
    GROUP BY 1, 2, 3
) AS by_agent
GROUP BY 1, 2
ORDER BY times DESC, 1, 2;

-- name: difference_of_two_days
-- Calls by agent and tool: yesterday beside the day before, the largest change first.
SELECT * FROM (
    SELECT agent, server, tool,
        coalesce(sum(events) FILTER (WHERE hour < date_trunc('day', now()) - interval '1 day'), 0)::bigint AS day_before,
        coalesce(sum(events) FILTER (WHERE hour >= date_trunc('day', now()) - interval '1 day'), 0)::bigint AS yesterday
    FROM event_counts
    WHERE kind = 'decided' AND tool IS NOT NULL
      AND hour >= date_trunc('day', now()) - interval '2 days' AND hour < date_trunc('day', now())
    GROUP BY agent, server, tool
) AS both_days
WHERE day_before <> yesterday
ORDER BY abs(day_before - yesterday) DESC, agent, server, tool
LIMIT 100;
