-- Decided calls counted by the hour, so that questions over days and weeks need not read them all. Exact: counted in the transaction that
-- adds the events, and only those that are new. Rows are only added, so that proxies never wait for each other; those of past
-- hours are summed up in passing.

CREATE TABLE event_counts (
    hour     timestamptz NOT NULL,
    kind     text NOT NULL,
    agent    text,
    server   text,
    tool     text,
    decision text,
    events   bigint NOT NULL
);

COMMENT ON TABLE event_counts IS 'How many calls were decided in each hour (UTC), by agent, server, tool and decision. Add up rows that are alike.';
COMMENT ON COLUMN event_counts.hour IS 'When the hour began.';
COMMENT ON COLUMN event_counts.kind IS 'decided: only decisions are counted.';
COMMENT ON COLUMN event_counts.agent IS 'Who called.';
COMMENT ON COLUMN event_counts.server IS 'The MCP server.';
COMMENT ON COLUMN event_counts.tool IS 'The tool.';
COMMENT ON COLUMN event_counts.decision IS 'allow or deny.';
COMMENT ON COLUMN event_counts.events IS 'How many.';

CREATE INDEX event_counts_by_hour ON event_counts (hour);
CREATE INDEX event_counts_by_agent ON event_counts (agent, tool, hour) WHERE kind = 'decided';

CREATE FUNCTION interlock_count_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO event_counts
    SELECT date_trunc('hour', ts, 'UTC'), kind, agent, server, tool, decision, count(*)
    FROM added WHERE kind = 'decided'
    GROUP BY 1, 2, 3, 4, 5, 6;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION interlock_count_events IS 'Counts the events that a statement adds.';
REVOKE EXECUTE ON FUNCTION interlock_count_events() FROM PUBLIC;

INSERT INTO event_counts
SELECT date_trunc('hour', ts, 'UTC'), kind, agent, server, tool, decision, count(*)
FROM events WHERE kind = 'decided'
GROUP BY 1, 2, 3, 4, 5, 6;

CREATE TRIGGER count_events AFTER INSERT ON events
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION interlock_count_events();

CREATE FUNCTION interlock_sum_counts() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '3s' AS $$
DECLARE
    until timestamptz := date_trunc('hour', now(), 'UTC');
    rows bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('interlock_sum_counts'));
    -- Only hours with many rows for few sums; late events make a few more, which the next time takes.
    WITH often AS (
        SELECT hour FROM event_counts WHERE hour < until
        GROUP BY hour HAVING count(*) > 2 * count(DISTINCT (kind, agent, server, tool, decision))
    ), gone AS (
        DELETE FROM event_counts WHERE hour IN (SELECT hour FROM often) RETURNING *
    )
    INSERT INTO event_counts
    SELECT hour, kind, agent, server, tool, decision, sum(events) FROM gone GROUP BY 1, 2, 3, 4, 5, 6;
    GET DIAGNOSTICS rows = ROW_COUNT;
    RETURN rows;
END $$;
COMMENT ON FUNCTION interlock_sum_counts IS 'Sum up the counts of past hours; gives how many rows there are in their place. Proxies call it in passing.';
REVOKE EXECUTE ON FUNCTION interlock_sum_counts() FROM PUBLIC;

CREATE FUNCTION interlock_recount_events(before timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    until timestamptz := date_trunc('hour', before, 'UTC') + interval '1 hour';
BEGIN
    -- Nobody counts meanwhile: what is added between the two statements would be counted twice, or not at all.
    LOCK TABLE event_counts IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM event_counts WHERE hour < until;
    INSERT INTO event_counts
    SELECT date_trunc('hour', ts, 'UTC'), kind, agent, server, tool, decision, count(*)
    FROM events WHERE ts < until AND kind = 'decided'
    GROUP BY 1, 2, 3, 4, 5, 6;
END $$;
COMMENT ON FUNCTION interlock_recount_events IS 'Count the events up to the end of an hour anew: after some of them were deleted.';
REVOKE EXECUTE ON FUNCTION interlock_recount_events(timestamptz) FROM PUBLIC;

ALTER FUNCTION interlock_grant_roles() RENAME TO interlock_grant_roles_but_counts;
CREATE FUNCTION interlock_grant_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock_grant_roles_but_counts();
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT EXECUTE ON FUNCTION interlock_sum_counts() TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON event_counts TO interlock_reader;
    END IF;
END $$;

SELECT interlock_grant_roles();
