-- Pruning lets go of the beginning of each chain, which was verified and signed for before, and of nothing else.

CREATE FUNCTION interlock_drop_events(before timestamptz, of_writers text[], up_to bigint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    first_kept timestamptz := date_trunc('day', before AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    covered    text := '(e.writer IS NULL OR e.seq IS NULL OR e.chain IS NULL OR EXISTS ('
        'SELECT 1 FROM unnest($1, $2) AS h (writer, seq) WHERE h.writer = e.writer AND e.seq <= h.seq))';
    part       record;
    names      text[] := '{}';
    rows       bigint;
    others     bigint;
    gone       bigint := 0;
BEGIN
    FOR part IN
        SELECT c.relname AS name, to_date(substr(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' AS starts
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_\d{8}$'
    LOOP
        CONTINUE WHEN part.starts >= first_kept;
        EXECUTE format('SELECT count(*), count(*) FILTER (WHERE NOT %s) FROM %I e', covered, part.name)
            INTO rows, others USING of_writers, up_to;
        IF others = 0 THEN
            gone := gone + rows;
            names := names || format('%I', part.name);
        ELSE
            -- A clock went back: some of these are younger than they say.
            EXECUTE format('DELETE FROM %I e WHERE %s', part.name, covered) USING of_writers, up_to;
            GET DIAGNOSTICS rows = ROW_COUNT;
            gone := gone + rows;
        END IF;
    END LOOP;
    DELETE FROM events e USING unnest(of_writers, up_to) AS h (writer, seq)
        WHERE e.writer = h.writer AND e.seq <= h.seq AND e.ts >= first_kept;
    GET DIAGNOSTICS rows = ROW_COUNT;
    gone := gone + rows;
    DELETE FROM events_default e USING unnest(of_writers, up_to) AS h (writer, seq)
        WHERE e.writer = h.writer AND e.seq <= h.seq;
    GET DIAGNOSTICS rows = ROW_COUNT;
    gone := gone + rows;
    DELETE FROM events e WHERE (e.writer IS NULL OR e.seq IS NULL OR e.chain IS NULL)
        AND e.ts < before AND (e.ts >= first_kept OR e.tableoid = 'events_default'::regclass);
    GET DIAGNOSTICS rows = ROW_COUNT;
    -- Last, since from here on nobody can write until it is done.
    IF names <> '{}' THEN
        EXECUTE 'DROP TABLE ' || array_to_string(names, ', ');
    END IF;
    RETURN gone + rows;
END $$;
COMMENT ON FUNCTION interlock_drop_events(timestamptz, text[], bigint[]) IS
    'Delete the events of each writer up to its number, and what belongs to no chain and is older than the time; '
    'partitions that end before the time and hold nothing else are dropped. Gives how many events are gone. '
    '`interlock audit prune` calls it after it has verified and signed for them.';
COMMENT ON FUNCTION interlock_drop_events(timestamptz) IS
    'Drop the partitions that end before this time and delete what else is older; gives how many events are gone. '
    'Nothing is signed: `interlock audit verify` misses them afterwards. Rather use `interlock audit prune`.';
REVOKE EXECUTE ON FUNCTION interlock_drop_events(timestamptz, text[], bigint[]) FROM PUBLIC;

-- Room is made in passing: whoever reads for long, or writes, is not kept waiting behind a lock that is not to be had.
ALTER FUNCTION interlock_make_partitions SET lock_timeout = '3s';

-- Half the size, and half the cost of each event; the few with the same number are sorted when they are read.
DROP INDEX events_by_writer;
CREATE INDEX events_by_writer ON events (writer, seq);

COMMENT ON COLUMN events.arguments_hash IS 'Keyed hash of the exact arguments.';
COMMENT ON COLUMN events.result_digest IS 'Keyed hash of the result as it was delivered.';
COMMENT ON COLUMN events.decision IS 'allow, deny or propose.';
COMMENT ON COLUMN events.redactions IS
    'What was found: detector, place and keyed fingerprint, never the value; record_only where nothing but this record was masked.';
COMMENT ON COLUMN tool_calls.arguments_hash IS 'Keyed hash of the exact arguments.';
COMMENT ON COLUMN tool_calls.result_digest IS 'Keyed hash of the result as it was delivered.';
COMMENT ON COLUMN tool_calls.decision IS 'allow, deny or propose.';
COMMENT ON COLUMN tool_calls.redactions IS
    'What was found in the arguments: detector, place and keyed fingerprint; record_only where nothing but this record was masked.';
COMMENT ON COLUMN two_phase_ledger.arguments_hash IS 'Keyed hash of the exact arguments.';
