-- Two-phase execution in Postgres alone (proxy/store/proposal_store.py).

-- name: commit_at_once
-- What `mark_committed` and `consume_nonce` do, in one round trip. The update locks the proposal's row, so of several at
-- once the others wait here and then find it committed; the primary key of the nonce has the last word all the same.
WITH marked AS (
    UPDATE proposals SET state = 'committed', awaited = false
    WHERE proposal_id = $1 AND nonce = $2 AND state IN ('proposed', 'approved')
      AND NOT EXISTS (SELECT 1 FROM commits WHERE commits.nonce = $2)
    RETURNING proposal_id
)
INSERT INTO commits (
    proposal_id, nonce, attempt_id, committed_at, expires_at, outcome, ended_at, attempts, question, token_id
)
SELECT proposal_id, $2, $3, $4, $5, $6, $7, $8, $9, $10 FROM marked
ON CONFLICT DO NOTHING
RETURNING nonce;

-- name: takes_no_writes
-- A standby, or a database that was made read-only.
SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean;
