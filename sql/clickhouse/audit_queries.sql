-- Ready questions to the audit trail in ClickHouse, for clickhouse-client and dashboards: those of sql/audit_queries.sql that
-- need no table beside the events. The names are those that the sink makes by default.

-- name: who_called_what_yesterday
SELECT agent, server, tool, count() AS calls, countIf(decision = 'deny') AS denied
FROM interlock_events FINAL
WHERE kind = 'decided' AND tool IS NOT NULL AND ts >= toStartOfDay(now('UTC')) - INTERVAL 1 DAY AND ts < toStartOfDay(now('UTC'))
GROUP BY agent, server, tool
ORDER BY calls DESC, agent, server, tool;

-- name: denials_by_rule
SELECT coalesce(rule, concat('(', reason, ')')) AS by_rule, reason, count() AS denials, uniqExact(agent) AS agents, max(time) AS last
FROM interlock_denied_calls
WHERE time > now('UTC') - INTERVAL 7 DAY
GROUP BY by_rule, reason
ORDER BY denials DESC, by_rule;

-- name: latest_denials
SELECT time, agent, server, coalesce(tool, method) AS what, reason, rule, arguments
FROM interlock_denied_calls
WHERE time > now('UTC') - INTERVAL 7 DAY
ORDER BY time DESC, event_id DESC
LIMIT 50;

-- name: secrets_caught_by_tool
SELECT server, tool, JSONExtractString(found, 'detector') AS detector, count() AS times, uniqExact(call_id) AS calls,
    countIf(JSONExtractBool(found, 'record_only')) AS only_in_record
FROM (SELECT * FROM interlock_events FINAL WHERE redactions IS NOT NULL AND ts > now('UTC') - INTERVAL 7 DAY)
ARRAY JOIN JSONExtractArrayRaw(assumeNotNull(redactions)) AS found
GROUP BY server, tool, detector
ORDER BY times DESC, server, tool, detector;

-- name: slowest_tools
SELECT server, tool, count() AS calls, round(avg(total_ms), 1) AS mean_ms, round(quantileExact(0.95)(total_ms), 1) AS p95_ms,
    max(total_ms) AS max_ms
FROM interlock_events FINAL
WHERE kind = 'completed' AND method = 'tools/call' AND ts > now('UTC') - INTERVAL 1 HOUR
GROUP BY server, tool
ORDER BY p95_ms DESC NULLS LAST
LIMIT 20;

-- name: new_tools_this_week
SELECT server, tool, min(ts) AS first_called, count() AS calls
FROM interlock_events
WHERE kind = 'decided' AND tool IS NOT NULL
GROUP BY server, tool
HAVING first_called > now('UTC') - INTERVAL 7 DAY
ORDER BY first_called;

-- name: calls_that_never_ended
SELECT ts AS time, call_id, agent, server, tool
FROM interlock_events FINAL
WHERE kind = 'decided' AND method = 'tools/call' AND decision = 'allow'
  AND ts > now('UTC') - INTERVAL 1 DAY AND ts < now('UTC') - INTERVAL 5 MINUTE
  AND call_id NOT IN (
    SELECT call_id FROM interlock_events
    WHERE kind = 'completed' AND call_id IS NOT NULL AND ts > now('UTC') - INTERVAL 2 DAY
  )
ORDER BY ts DESC
LIMIT 50;

-- name: shadow_rules_that_would_have_matched
SELECT shadow AS rule, count() AS calls, uniqExact(tool) AS tools, max(ts) AS last
FROM (SELECT * FROM interlock_events FINAL WHERE kind = 'decided' AND shadow_rules IS NOT NULL AND ts > now('UTC') - INTERVAL 7 DAY)
ARRAY JOIN JSONExtract(assumeNotNull(shadow_rules), 'Array(String)') AS shadow
GROUP BY rule
ORDER BY calls DESC;

-- name: who_approved_what
SELECT ts AS time, kind AS what, JSONExtractString(assumeNotNull(detail), 'operator') AS operator, agent, server, tool, proposal_id,
    JSONExtractString(assumeNotNull(detail), 'reason') AS why
FROM interlock_events FINAL
WHERE kind IN ('approved', 'rejected') AND ts > now('UTC') - INTERVAL 7 DAY
ORDER BY ts DESC
LIMIT 200;

-- name: first_use_by_agent
SELECT agent, server, tool, minIf(ts, ts >= toStartOfDay(now('UTC'))) AS first_called, countIf(ts >= toStartOfDay(now('UTC'))) AS calls
FROM interlock_events FINAL
WHERE kind = 'decided' AND tool IS NOT NULL AND ts >= toStartOfDay(now('UTC')) - INTERVAL 30 DAY
GROUP BY agent, server, tool
HAVING min(ts) >= toStartOfDay(now('UTC'))
ORDER BY first_called;

-- name: daily_volume
SELECT toStartOfDay(ts) AS day, count() AS calls, countIf(decision = 'deny') AS denied, uniqExact(agent) AS agents,
    uniqExact(tool) AS tools
FROM interlock_events FINAL
WHERE kind = 'decided' AND ts >= toStartOfDay(now('UTC')) - INTERVAL 7 DAY
GROUP BY day
ORDER BY day;

-- name: secrets_by_host
SELECT server AS host, JSONExtractString(found, 'detector') AS detector, count() AS times, uniqExact(agent) AS agents, max(ts) AS last
FROM (SELECT * FROM interlock_events FINAL WHERE redactions IS NOT NULL AND ts > now('UTC') - INTERVAL 7 DAY)
ARRAY JOIN JSONExtractArrayRaw(assumeNotNull(redactions)) AS found
GROUP BY host, detector
ORDER BY times DESC, host, detector;

-- name: difference_of_two_days
SELECT agent, server, tool, countIf(ts < toStartOfDay(now('UTC')) - INTERVAL 1 DAY) AS day_before,
    countIf(ts >= toStartOfDay(now('UTC')) - INTERVAL 1 DAY) AS yesterday
FROM interlock_events FINAL
WHERE kind = 'decided' AND tool IS NOT NULL
  AND ts >= toStartOfDay(now('UTC')) - INTERVAL 2 DAY AND ts < toStartOfDay(now('UTC'))
GROUP BY agent, server, tool
HAVING day_before <> yesterday
ORDER BY abs(toInt64(day_before) - toInt64(yesterday)) DESC, agent, server, tool
LIMIT 100;
