-- Which writers there are, and what was signed of them, in the store itself.

CREATE TABLE audit_writers (
    number INTEGER PRIMARY KEY CHECK (number > 0),
    writer TEXT NOT NULL UNIQUE,
    body   TEXT NOT NULL,
    chain  TEXT NOT NULL
) STRICT;

CREATE TABLE audit_checkpoints (
    writer TEXT NOT NULL,
    kind   TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    line   TEXT NOT NULL,
    PRIMARY KEY (writer, kind, seq, line)
) STRICT, WITHOUT ROWID;

-- An event of no chain is found at once, however many there are.
CREATE INDEX events_unchained ON events (ts) WHERE writer IS NULL OR seq IS NULL OR chain IS NULL;

-- Rare kinds by time: approvals, observations and findings among millions of calls.
CREATE INDEX events_by_kind ON events (kind, ts) WHERE kind <> 'decided' AND kind <> 'completed';
