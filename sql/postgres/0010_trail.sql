-- Which writers there are, and what was signed of them, in the store itself: a writer of another machine that vanished is found.

CREATE TABLE audit_writers (
    number bigint PRIMARY KEY CHECK (number > 0),
    writer text COLLATE "C" NOT NULL UNIQUE,
    body   text NOT NULL,
    chain  text NOT NULL
);

COMMENT ON TABLE audit_writers IS 'The registry of writers, append-only. It is a hash chain of its own, whose end every proxy signs.';
COMMENT ON COLUMN audit_writers.number IS 'Its place in the registry.';
COMMENT ON COLUMN audit_writers.writer IS 'The writer: one local log of one state folder.';
COMMENT ON COLUMN audit_writers.body IS 'What was registered, as one JSON object: writer, host, when it began, and the public key that signs for it.';
COMMENT ON COLUMN audit_writers.chain IS 'The link of the registry''s hash chain.';

-- Writers whose events are here already. A proxy may have no right to read events, so nobody could do this later; the next
-- proxy that ships signs it. The links are those of `proxy/audit/event.py`.
DO $$
DECLARE
    registry text := gen_random_uuid();
    place bigint := 0;
    tip bytea := sha256('\x696e7465726c6f636b2d636861696e2d3100'::bytea || convert_to('registry-' || registry, 'UTF8'));
    known text;
    entry text;
BEGIN
    FOR known IN
        -- From one writer to the next by the index, however many events each has.
        WITH RECURSIVE found (writer) AS (
            SELECT min(writer) FROM events
            UNION ALL
            SELECT (SELECT min(e.writer) FROM events e WHERE e.writer > found.writer) FROM found
            WHERE found.writer IS NOT NULL
        )
        SELECT writer FROM found WHERE writer IS NOT NULL
    LOOP
        place := place + 1;
        entry := json_build_object('registry', registry, 'name', known, 'found', 'in the store');
        tip := sha256(tip || int8send(place) || convert_to(entry, 'UTF8'));
        INSERT INTO audit_writers VALUES (place, known, entry, encode(tip, 'hex'));
    END LOOP;
END $$;

CREATE TABLE audit_checkpoints (
    writer text COLLATE "C" NOT NULL,
    kind   text NOT NULL,
    seq    bigint NOT NULL,
    line   text NOT NULL,
    PRIMARY KEY (writer, kind, seq, line)
);

COMMENT ON TABLE audit_checkpoints IS 'Signed checkpoints of every writer, append-only: the same lines as in the files of the proxies.';
COMMENT ON COLUMN audit_checkpoints.writer IS 'The writer that it speaks of.';
COMMENT ON COLUMN audit_checkpoints.kind IS 'head, pruned or rejected.';
COMMENT ON COLUMN audit_checkpoints.seq IS 'The event that it speaks of.';
COMMENT ON COLUMN audit_checkpoints.line IS 'The checkpoint with its signature, as one JSON object. The other columns are only for finding it.';

-- An event of no chain is found at once, however many there are.
CREATE INDEX events_unchained ON events (ts) WHERE writer IS NULL OR seq IS NULL OR chain IS NULL;

-- Rare kinds by time: approvals, observations and findings among millions of calls.
CREATE INDEX events_by_kind ON events (kind, ts) WHERE kind <> 'decided' AND kind <> 'completed';
-- What is asked of calls that ended, inside the index.
CREATE INDEX events_completed ON events (ts) INCLUDE (method, server, tool, total_ms, is_error) WHERE kind = 'completed';

-- What was granted before stays as it is: this adds to it.
ALTER FUNCTION interlock_grant_roles() RENAME TO interlock_grant_roles_but_trail;
CREATE FUNCTION interlock_grant_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock_grant_roles_but_trail();
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT SELECT, INSERT ON audit_writers, audit_checkpoints TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON audit_writers, audit_checkpoints TO interlock_reader;
    END IF;
END $$;

SELECT interlock_grant_roles();
