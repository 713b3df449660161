-- What servers were seen doing: an event of kind observed tells of many things, each with its count, and counts by
-- capability those for which it had no room.

CREATE OR REPLACE VIEW server_behaviour AS
SELECT
    e.server, e.tool, seen.capability, sum(seen.times)::bigint AS observations,
    count(DISTINCT e.call_id) AS calls, min(e.ts) AS first_seen, max(e.ts) AS last_seen
FROM events e
CROSS JOIN LATERAL (
    SELECT
        o ->> 'capability' AS capability,
        CASE jsonb_typeof(o -> 'count') WHEN 'number' THEN (o -> 'count')::numeric ELSE 1 END AS times
    FROM jsonb_array_elements(
        CASE jsonb_typeof(e.detail -> 'observations') WHEN 'array' THEN e.detail -> 'observations' ELSE '[]' END
    ) o
    UNION ALL
    SELECT m.key, m.value::numeric
    FROM jsonb_each(
        CASE jsonb_typeof(e.detail -> 'more') WHEN 'object' THEN e.detail -> 'more' ELSE '{}' END
    ) m
    WHERE jsonb_typeof(m.value) = 'number'
) seen
WHERE e.kind = 'observed' AND seen.capability IS NOT NULL
GROUP BY e.server, e.tool, seen.capability;
