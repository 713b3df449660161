-- Each writer's events in the order of its chain, and a function that verifies them (docs/audit.md).

CREATE INDEX events_by_writer ON events (writer, seq, event_id);

CREATE FUNCTION interlock_verify_chain(
    of_writer text, first_seq bigint DEFAULT 1, last_seq bigint DEFAULT 9223372036854775807
) RETURNS TABLE (checked bigint, bad_seq bigint, bad_event_id text, problem text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    event    record;
    expected bigint := NULL;
    tip      bytea := NULL;
BEGIN
    checked := 0;
    IF first_seq <= 1 THEN
        expected := 1;
        tip := sha256(convert_to('interlock-chain-1', 'UTF8') || '\x00'::bytea || convert_to(of_writer, 'UTF8'));
    END IF;
    FOR event IN
        SELECT e.seq, e.event_id, e.chain, e.body FROM events e
        WHERE e.writer = of_writer AND e.seq >= first_seq - 1 AND e.seq <= last_seq ORDER BY e.seq, e.event_id
    LOOP
        bad_seq := event.seq;
        bad_event_id := event.event_id;
        IF expected IS NOT NULL AND event.seq < expected THEN
            problem := 'repeated';
        ELSIF expected IS NOT NULL AND event.seq > expected THEN
            bad_seq := expected;
            bad_event_id := NULL;
            problem := 'missing';
        ELSIF event.seq >= first_seq AND tip IS NOT NULL
            AND event.chain IS DISTINCT FROM encode(sha256(tip || int8send(event.seq) || convert_to(event.body, 'UTF8')), 'hex')
        THEN
            problem := 'altered';
        END IF;
        IF problem IS NOT NULL THEN
            RETURN NEXT;
            RETURN;
        END IF;
        IF event.seq >= first_seq THEN
            checked := checked + 1;
        END IF;
        expected := event.seq + 1;
        tip := decode(event.chain, 'hex');
    END LOOP;
    bad_seq := NULL;
    bad_event_id := NULL;
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION interlock_verify_chain IS
    'Verify the hash chain of one writer''s events from first_seq to last_seq: how many were checked, and the first bad '
    'one: altered, missing or repeated. Where the event before first_seq is not there, the first link is taken as it is. '
    'Signed checkpoints are not looked at: `interlock audit verify` does that.';
REVOKE EXECUTE ON FUNCTION interlock_verify_chain FROM PUBLIC;

DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT EXECUTE ON FUNCTION interlock_verify_chain TO interlock_reader;
    END IF;
END $$;
