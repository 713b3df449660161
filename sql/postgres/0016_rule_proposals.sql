-- Rules that agents propose. A person decides; no row here puts a rule in force.

CREATE TABLE rule_proposals (
    proposal_id    text PRIMARY KEY,
    agent          text NOT NULL,
    rule_id        text NOT NULL,
    text           text NOT NULL CHECK (octet_length(text) <= 131072),
    why            text NOT NULL,
    digest         text NOT NULL,
    call_id        text NOT NULL,
    policy_version text NOT NULL,
    created_at     timestamptz NOT NULL,
    state          text NOT NULL CHECK (state IN ('waiting', 'accepted', 'rejected')),
    operator       text,
    reason         text,
    decided_at     timestamptz
);

CREATE INDEX rule_proposals_by_agent ON rule_proposals (agent, created_at);

COMMENT ON TABLE rule_proposals IS 'Rules that agents propose, for people to look at. Accepting one puts nothing in force.';
COMMENT ON COLUMN rule_proposals.proposal_id IS 'Names the proposal.';
COMMENT ON COLUMN rule_proposals.agent IS 'Who proposed it.';
COMMENT ON COLUMN rule_proposals.rule_id IS 'The id of the rule.';
COMMENT ON COLUMN rule_proposals.text IS 'The rule, as a policy file of its own.';
COMMENT ON COLUMN rule_proposals.why IS 'What the agent says it is for.';
COMMENT ON COLUMN rule_proposals.digest IS 'SHA-256 of the text.';
COMMENT ON COLUMN rule_proposals.call_id IS 'The audit id of the call that proposed it.';
COMMENT ON COLUMN rule_proposals.policy_version IS 'The policy in force then.';
COMMENT ON COLUMN rule_proposals.created_at IS 'When.';
COMMENT ON COLUMN rule_proposals.state IS 'waiting, accepted or rejected.';
COMMENT ON COLUMN rule_proposals.operator IS 'Who decided.';
COMMENT ON COLUMN rule_proposals.reason IS 'What the operator gave as the reason.';
COMMENT ON COLUMN rule_proposals.decided_at IS 'When.';

ALTER FUNCTION interlock_grant_roles() RENAME TO interlock_grant_roles_but_rules;
CREATE FUNCTION interlock_grant_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock_grant_roles_but_rules();
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT SELECT, INSERT, DELETE ON rule_proposals TO interlock_writer;
        GRANT UPDATE (state, operator, reason, decided_at) ON rule_proposals TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON rule_proposals TO interlock_reader;
    END IF;
END $$;

SELECT interlock_grant_roles();
