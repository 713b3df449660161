-- The outbox of notices (proxy/store/notice_store.py). SQLite and Postgres both take these.

-- name: untold_proposals
-- Derived from the proposals themselves: no call waits for a notice to be written, and none is missed after a crash.
-- What has ended is told only to those who were told that it waits.
SELECT * FROM (
    SELECT
        proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
        created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
        operator_reason, operator_at, people, approvals, own, how, parts, standing_id,
        CASE
            WHEN state = 'committed' THEN 'approved'
            WHEN state IN ('pending', 'approved') AND expires_at <= $2 THEN 'expired'
            ELSE state
        END AS told
    FROM proposals WHERE state IN ('pending', 'approved', 'rejected', 'expired', 'committed') AND approval = 'human'
) AS standing
WHERE standing_id IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM notices n
        WHERE n.target = $1 AND n.proposal_id = standing.proposal_id
            AND (n.state = standing.told OR (n.state <> 'pending' AND standing.told = 'expired'))
    )
    AND (
        standing.told = 'pending'
        OR EXISTS (
            SELECT 1 FROM notices n
            WHERE n.target = $1 AND n.proposal_id = standing.proposal_id AND n.state = 'pending'
        )
    )
ORDER BY created_at LIMIT $3;

-- name: insert_notice
INSERT INTO notices (target, proposal_id, state, body, created_at, due_at) VALUES ($1, $2, $3, $4, $5, $5)
ON CONFLICT DO NOTHING
RETURNING target;

-- name: due_notices
SELECT target, proposal_id, state, body, attempts FROM notices
WHERE sent_at IS NULL AND given_up_at IS NULL AND due_at <= $1
ORDER BY due_at LIMIT 20;

-- name: claim_notice
-- Whoever counts the attempt first sends it; for the others it is not due any more.
UPDATE notices SET attempts = attempts + 1, due_at = $5
WHERE target = $1 AND proposal_id = $2 AND state = $3 AND attempts = $4 AND sent_at IS NULL AND given_up_at IS NULL
RETURNING target;

-- name: notice_sent
UPDATE notices SET sent_at = $4, problem = NULL WHERE target = $1 AND proposal_id = $2 AND state = $3;

-- name: notice_failed
UPDATE notices SET problem = $4, due_at = $5 WHERE target = $1 AND proposal_id = $2 AND state = $3;

-- name: notice_given_up
UPDATE notices SET problem = $4, given_up_at = $5 WHERE target = $1 AND proposal_id = $2 AND state = $3;

-- name: delete_old_notices
DELETE FROM notices WHERE created_at < $1;
