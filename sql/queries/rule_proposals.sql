-- Rules that agents propose, on any database (proxy/store/rule_proposal_store.py).

-- name: insert_rule_proposal
INSERT INTO rule_proposals (proposal_id, agent, rule_id, text, why, digest, call_id, policy_version, created_at, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'waiting') ON CONFLICT DO NOTHING;

-- name: same_rule_proposal
SELECT proposal_id, agent, rule_id, text, why, digest, call_id, policy_version, created_at, state, operator, reason, decided_at
FROM rule_proposals WHERE agent = $1 AND digest = $2 AND state = 'waiting' LIMIT 1;

-- name: find_rule_proposal
SELECT proposal_id, agent, rule_id, text, why, digest, call_id, policy_version, created_at, state, operator, reason, decided_at
FROM rule_proposals WHERE proposal_id = $1;

-- name: list_rule_proposals
SELECT proposal_id, agent, rule_id, text, why, digest, call_id, policy_version, created_at, state, operator, reason, decided_at
FROM rule_proposals WHERE state IN ($1, $2, $3) ORDER BY created_at DESC, proposal_id DESC LIMIT $4;

-- name: count_waiting_rules
SELECT count(*) FROM rule_proposals WHERE state = 'waiting';

-- name: count_waiting_rules_of
SELECT count(*) FROM rule_proposals WHERE agent = $1 AND state = 'waiting';

-- name: count_new_rules_of
SELECT count(*) FROM rule_proposals WHERE agent = $1 AND created_at > $2;

-- name: decide_rule_proposal
UPDATE rule_proposals SET state = $2, operator = $3, reason = $4, decided_at = $5
WHERE proposal_id = $1 AND state = 'waiting'
RETURNING proposal_id, agent, rule_id, text, why, digest, call_id, policy_version, created_at, state, operator, reason, decided_at;

-- name: delete_old_rules
DELETE FROM rule_proposals WHERE created_at < $1;
