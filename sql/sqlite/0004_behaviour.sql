-- What servers were seen doing: an event of kind observed tells of many things, each with its count, and counts by
-- capability those for which it had no room.

DROP VIEW server_behaviour;

CREATE VIEW server_behaviour AS
SELECT
    server, tool, capability, sum(times) AS observations,
    count(DISTINCT call_id) AS calls, min(ts) AS first_seen, max(ts) AS last_seen
FROM (
    SELECT
        e.server, e.tool, e.call_id, e.ts, o.value ->> 'capability' AS capability,
        coalesce(o.value ->> 'count', 1) AS times
    FROM events e, json_each(e.detail, '$.observations') o
    WHERE e.kind = 'observed' AND o.type = 'object'
    UNION ALL
    SELECT e.server, e.tool, e.call_id, e.ts, m.key, m.value
    FROM events e, json_each(e.detail, '$.more') m
    WHERE e.kind = 'observed' AND m.type = 'integer'
)
WHERE capability IS NOT NULL
GROUP BY server, tool, capability;
