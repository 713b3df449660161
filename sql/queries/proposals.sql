-- Two-phase execution: proposals, who approved them, the commits that consume their nonces, and prompt baselines
-- (proxy/store/proposal_store.py, proxy/store/standing_store.py).
-- SQLite and Postgres both take these. Columns of a proposal, a commit and a baseline are read by their order.

-- name: insert_proposal
-- The conflict has no target: the same id, the same nonce and another proposal that waits for the same call all count.
INSERT INTO proposals (
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at, people, approvals, own, how, parts, standing_id, call_key, awaited
)
VALUES (
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26,
    $27, $28, $29, $30
)
ON CONFLICT DO NOTHING
RETURNING proposal_id;

-- name: find_proposal
SELECT
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at, people, approvals, own, how, parts, standing_id
FROM proposals WHERE proposal_id = $1;

-- name: find_awaited_proposal
SELECT
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at, people, approvals, own, how, parts, standing_id
FROM proposals WHERE call_key = $1 AND awaited AND expires_at > $2;

-- name: find_rejected_proposal
-- Whether this very rejection was made before a connection broke.
SELECT
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at, people, approvals, own, how, parts, standing_id
FROM proposals WHERE proposal_id = $1 AND state = 'rejected' AND operator = $2 AND operator_at = $3;

-- name: newest_proposals
-- As many marks as there are states: neither database has an array that the other takes.
SELECT
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at, people, approvals, own, how, parts, standing_id
FROM proposals WHERE state IN ($2, $3, $4, $5, $6, $7, $8)
ORDER BY created_at DESC, proposal_id DESC LIMIT $1;

-- name: count_waiting
SELECT COUNT(*) FROM proposals WHERE state = 'pending' AND expires_at > $1;

-- name: reject_proposal
-- One rejection ends it, however many have approved, until it is committed.
UPDATE proposals SET state = 'rejected', operator = $2, operator_reason = $3, operator_at = $4, expires_at = $5
WHERE proposal_id = $1 AND expires_at > $4 AND state IN ('pending', 'approved')
RETURNING
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at, people, approvals, own, how, parts, standing_id;

-- name: insert_approval
INSERT INTO approvals (proposal_id, operator, reason, approved_at)
SELECT proposal_id, $2, $3, $4 FROM proposals WHERE proposal_id = $1 AND expires_at > $4 AND state = 'pending'
ON CONFLICT DO NOTHING
RETURNING proposal_id;

-- name: count_approval
-- The update locks the row: of several operators at once, each counts, and the last one needed makes it approved.
UPDATE proposals SET
    approvals = approvals + 1, operator = $2, operator_reason = $3, operator_at = $4,
    state = CASE WHEN approvals + 1 >= people THEN 'approved' ELSE state END,
    expires_at = CASE WHEN approvals + 1 >= people THEN $5 ELSE expires_at END
WHERE proposal_id = $1 AND expires_at > $4 AND state = 'pending'
RETURNING
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at, people, approvals, own, how, parts, standing_id;

-- name: find_approval
-- Whether this very approval was given before a connection broke.
SELECT proposal_id FROM approvals WHERE proposal_id = $1 AND operator = $2 AND approved_at = $3;

-- name: list_approvals
SELECT operator, reason, approved_at FROM approvals WHERE proposal_id = $1 ORDER BY approved_at, operator;

-- name: note_approved_call
INSERT INTO approved_calls (server, tool, proposal_id, principal, arguments, operator, approved_at)
SELECT server, tool, proposal_id, principal, arguments, operator, operator_at FROM proposals WHERE proposal_id = $1
ON CONFLICT (server, tool) DO UPDATE SET
    proposal_id = excluded.proposal_id, principal = excluded.principal, arguments = excluded.arguments,
    operator = excluded.operator, approved_at = excluded.approved_at;

-- name: find_approved_call
SELECT server, tool, proposal_id, principal, arguments, operator, approved_at
FROM approved_calls WHERE server = $1 AND tool = $2;

-- name: insert_standing
INSERT INTO standing_approvals (
    standing_id, proposal_id, server, tool, principal, rule, vary, like_key, arguments, operator, reason, created_at,
    expires_at, granted, remaining, revoked_by, revoked_at
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
ON CONFLICT DO NOTHING;

-- name: list_standing
SELECT
    standing_id, proposal_id, server, tool, principal, rule, vary, like_key, arguments, operator, reason, created_at,
    expires_at, granted, remaining, revoked_by, revoked_at
FROM standing_approvals ORDER BY created_at DESC, standing_id DESC LIMIT $1;

-- name: find_standing
SELECT
    standing_id, proposal_id, server, tool, principal, rule, vary, like_key, arguments, operator, reason, created_at,
    expires_at, granted, remaining, revoked_by, revoked_at
FROM standing_approvals WHERE standing_id = $1;

-- name: live_standing
-- The one that ends first is used first.
SELECT
    standing_id, proposal_id, server, tool, principal, rule, vary, like_key, arguments, operator, reason, created_at,
    expires_at, granted, remaining, revoked_by, revoked_at
FROM standing_approvals
WHERE server = $1 AND tool = $2 AND principal = $3 AND rule = $4
    AND expires_at > $5 AND remaining > 0 AND revoked_at IS NULL
ORDER BY expires_at, standing_id LIMIT 100;

-- name: use_standing
-- One statement: among all replicas, no more calls than were granted get a row back.
UPDATE standing_approvals SET remaining = remaining - 1, last_call_id = $2
WHERE standing_id = $1 AND expires_at > $3 AND remaining > 0 AND revoked_at IS NULL
RETURNING
    standing_id, proposal_id, server, tool, principal, rule, vary, like_key, arguments, operator, reason, created_at,
    expires_at, granted, remaining, revoked_by, revoked_at;

-- name: find_used_standing
-- Whether this very call used it before a connection broke.
SELECT
    standing_id, proposal_id, server, tool, principal, rule, vary, like_key, arguments, operator, reason, created_at,
    expires_at, granted, remaining, revoked_by, revoked_at
FROM standing_approvals WHERE standing_id = $1 AND last_call_id = $2;

-- name: revoke_standing
UPDATE standing_approvals SET revoked_by = $2, revoked_at = $3
WHERE standing_id = $1 AND revoked_at IS NULL
RETURNING
    standing_id, proposal_id, server, tool, principal, rule, vary, like_key, arguments, operator, reason, created_at,
    expires_at, granted, remaining, revoked_by, revoked_at;

-- name: find_revoked_standing
SELECT
    standing_id, proposal_id, server, tool, principal, rule, vary, like_key, arguments, operator, reason, created_at,
    expires_at, granted, remaining, revoked_by, revoked_at
FROM standing_approvals WHERE standing_id = $1 AND revoked_by = $2 AND revoked_at = $3;

-- name: delete_old_standing
DELETE FROM standing_approvals WHERE standing_id IN (
    SELECT standing_id FROM standing_approvals WHERE expires_at < $1 LIMIT $2
)
RETURNING standing_id;

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
INSERT INTO commits (
    proposal_id, nonce, attempt_id, committed_at, expires_at, outcome, ended_at, attempts, question, token_id
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT DO NOTHING
RETURNING nonce;

-- name: nonce_owner
SELECT attempt_id FROM commits WHERE nonce = $1;

-- name: find_commit
SELECT proposal_id, nonce, attempt_id, committed_at, expires_at, outcome, ended_at, attempts, question, token_id
FROM commits WHERE nonce = $1;

-- name: find_asked_proposal
-- The proposal of this call that was carried out and that the server has answered with this question.
SELECT
    proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce,
    created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, operator,
    operator_reason, operator_at, people, approvals, own, how, parts, standing_id
FROM proposals
WHERE call_key = $1 AND nonce IN (SELECT nonce FROM commits WHERE question = $2 AND outcome = 'input_required')
ORDER BY created_at DESC LIMIT 1;

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
