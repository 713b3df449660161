-- Two-phase execution: proposals, the commits that consume their nonces, and prompt baselines (proxy/store/proposal_store.py).
-- SQLite and Postgres both take these. Columns of a proposal, a commit and a baseline are read by their order.

-- name: insert_proposal
-- The conflict has no target: the same id, the same nonce and another proposal that waits for the same call all count.
INSERT INTO proposals (
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at, call_key, awaited
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)
ON CONFLICT DO NOTHING
RETURNING proposal_id;

-- name: find_proposal
SELECT
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at
FROM proposals WHERE proposal_id = $1;

-- name: find_awaited_proposal
SELECT
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at
FROM proposals WHERE call_key = $1 AND awaited AND expires_at > $2;

-- name: find_decided_proposal
-- Whether this very decision was made before a connection broke.
SELECT
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at
FROM proposals WHERE proposal_id = $1 AND state = $2 AND operator = $3 AND operator_at = $4;

-- name: newest_proposals
-- As many marks as there are states: neither database has an array that the other takes.
SELECT
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at
FROM proposals WHERE state IN ($2, $3, $4, $5, $6, $7, $8)
ORDER BY created_at DESC, proposal_id DESC LIMIT $1;

-- name: decide_proposal
-- What is approved may still be rejected; nothing else changes once it is decided.
UPDATE proposals SET state = $2, operator = $3, operator_reason = $4, operator_at = $5, expires_at = $6
WHERE proposal_id = $1 AND expires_at > $5 AND (state = 'pending' OR (state = 'approved' AND $2 = 'rejected'))
RETURNING
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at;

-- name: expire_proposals
-- A rejected proposal stays rejected; that its time is over is seen in expires_at.
UPDATE proposals SET state = CASE state WHEN 'rejected' THEN state ELSE 'expired' END, awaited = false
WHERE expires_at <= $1 AND (awaited OR state IN ('proposed', 'pending', 'approved'));

-- name: expire_proposals_of_call
UPDATE proposals SET state = CASE state WHEN 'rejected' THEN state ELSE 'expired' END, awaited = false
WHERE expires_at <= $1 AND (awaited OR state IN ('proposed', 'pending', 'approved')) AND call_key = $2;

-- name: mark_committed
UPDATE proposals SET state = 'committed', awaited = false
WHERE proposal_id = $1 AND nonce = $2 AND state IN ('proposed', 'approved')
RETURNING proposal_id;

-- name: delete_old_proposals
-- A proposal stays as long as its commit does.
DELETE FROM proposals WHERE proposal_id IN (
    SELECT proposal_id FROM proposals
    WHERE expires_at < $1 AND NOT EXISTS (SELECT 1 FROM commits WHERE commits.proposal_id = proposals.proposal_id)
    LIMIT $2
)
RETURNING proposal_id;

-- name: consume_nonce
-- One nonce, one winner: the primary key decides, whoever comes at the same time.
INSERT INTO commits (proposal_id, nonce, attempt_id, committed_at, expires_at, outcome, ended_at, attempts, question)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING
RETURNING nonce;

-- name: nonce_owner
SELECT attempt_id FROM commits WHERE nonce = $1;

-- name: find_commit
SELECT proposal_id, nonce, attempt_id, committed_at, expires_at, outcome, ended_at, attempts, question
FROM commits WHERE nonce = $1;

-- name: resume_commit
UPDATE commits SET outcome = NULL, ended_at = NULL, question = NULL, attempt_id = $2, attempts = attempts + 1
WHERE nonce = $1 AND outcome = 'input_required' AND question = $3
RETURNING nonce;

-- name: find_resumed_commit
SELECT nonce FROM commits WHERE nonce = $1 AND attempt_id = $2 AND outcome IS NULL;

-- name: end_commit
UPDATE commits SET outcome = $3, ended_at = $4, question = $5
WHERE nonce = $1 AND attempt_id = $2 AND outcome IS NULL
RETURNING nonce;

-- name: find_ended_commit
SELECT nonce FROM commits WHERE nonce = $1 AND attempt_id = $2 AND outcome = $3 AND ended_at = $4;

-- name: delete_old_commits
-- A commit whose outcome is unknown stays: its nonce must not become free.
DELETE FROM commits WHERE nonce IN (
    SELECT nonce FROM commits WHERE expires_at < $1 AND outcome IS NOT NULL LIMIT $2
)
RETURNING nonce;

-- name: find_baseline
-- The baseline of this server, or else the one for every server.
SELECT server, tool, prompt_hash, set_at, set_by FROM tool_prompt_baselines
WHERE tool = $2 AND server IN ($1, '') ORDER BY server = '' LIMIT 1;

-- name: list_baselines
SELECT server, tool, prompt_hash, set_at, set_by FROM tool_prompt_baselines ORDER BY server, tool;

-- name: set_baseline
INSERT INTO tool_prompt_baselines (server, tool, prompt_hash, set_at, set_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (server, tool) DO UPDATE
SET prompt_hash = excluded.prompt_hash, set_at = excluded.set_at, set_by = excluded.set_by;

-- name: remove_baseline
DELETE FROM tool_prompt_baselines WHERE server = $1 AND tool = $2 RETURNING tool;
