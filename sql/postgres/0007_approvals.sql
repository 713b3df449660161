-- Approval by people: who approved what, approvals that stand for the next calls, the last approved call of each tool,
-- and the notices that tell people.

ALTER TABLE proposals
    ADD COLUMN people integer NOT NULL DEFAULT 1 CHECK (people >= 1),
    ADD COLUMN approvals integer NOT NULL DEFAULT 0 CHECK (approvals >= 0),
    ADD COLUMN own text NOT NULL DEFAULT 'allow' CHECK (own IN ('allow', 'refuse')),
    ADD COLUMN how text NOT NULL DEFAULT 'propose' CHECK (how IN ('propose', 'hold', 'elicit', 'task')),
    ADD COLUMN parts json NOT NULL DEFAULT '{}',
    ADD COLUMN standing_id text;
UPDATE proposals SET approvals = 1 WHERE operator IS NOT NULL AND state IN ('approved', 'committed');

COMMENT ON COLUMN proposals.people IS 'How many operators have to approve it.';
COMMENT ON COLUMN proposals.approvals IS 'How many have.';
COMMENT ON COLUMN proposals.own IS 'refuse: an operator who runs the agent may not approve it.';
COMMENT ON COLUMN proposals.how IS 'How the agent waits: it proposes and commits, its call is held, it is sent to a page, or it gets a task.';
COMMENT ON COLUMN proposals.parts IS 'For each argument its type and a keyed hash of its value, to compare calls with a standing approval.';
COMMENT ON COLUMN proposals.standing_id IS 'The standing approval that let it through, if one did.';

CREATE INDEX proposals_by_call ON proposals (call_key);

CREATE TABLE approvals (
    proposal_id text NOT NULL REFERENCES proposals (proposal_id) ON DELETE CASCADE,
    operator    text NOT NULL,
    reason      text NOT NULL,
    approved_at timestamptz NOT NULL,
    PRIMARY KEY (proposal_id, operator)
);

COMMENT ON TABLE approvals IS 'Who approved a proposal: one row for each operator, so that nobody counts twice.';
COMMENT ON COLUMN approvals.proposal_id IS 'The proposal.';
COMMENT ON COLUMN approvals.operator IS 'Who approved it.';
COMMENT ON COLUMN approvals.reason IS 'What the operator gave as the reason.';
COMMENT ON COLUMN approvals.approved_at IS 'When.';

CREATE TABLE standing_approvals (
    standing_id  text PRIMARY KEY,
    proposal_id  text NOT NULL,
    server       text NOT NULL,
    tool         text NOT NULL,
    principal    text NOT NULL,
    rule         text NOT NULL,
    vary         json NOT NULL,
    like_key     text NOT NULL,
    arguments    json NOT NULL,
    operator     text NOT NULL,
    reason       text NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    granted      integer NOT NULL CHECK (granted >= 1),
    remaining    integer NOT NULL CHECK (remaining >= 0),
    revoked_by   text,
    revoked_at   timestamptz,
    last_call_id text
);

COMMENT ON TABLE standing_approvals IS 'Approvals of the next calls like one that was approved: so many, until then.';
COMMENT ON COLUMN standing_approvals.standing_id IS 'Names the standing approval.';
COMMENT ON COLUMN standing_approvals.proposal_id IS 'The proposal that it was given with.';
COMMENT ON COLUMN standing_approvals.server IS 'The MCP server that it holds for.';
COMMENT ON COLUMN standing_approvals.tool IS 'The tool that it holds for.';
COMMENT ON COLUMN standing_approvals.principal IS 'The agent that it holds for.';
COMMENT ON COLUMN standing_approvals.rule IS 'The two_phase rule that it holds for.';
COMMENT ON COLUMN standing_approvals.vary IS 'Names of the arguments that may have other values of the same type.';
COMMENT ON COLUMN standing_approvals.like_key IS 'Hash of what a call must have in common with the one that was approved.';
COMMENT ON COLUMN standing_approvals.arguments IS 'The arguments that were approved, with secrets masked.';
COMMENT ON COLUMN standing_approvals.operator IS 'Who gave it.';
COMMENT ON COLUMN standing_approvals.reason IS 'What the operator gave as the reason.';
COMMENT ON COLUMN standing_approvals.created_at IS 'When it was given.';
COMMENT ON COLUMN standing_approvals.expires_at IS 'From when on it lets nothing through.';
COMMENT ON COLUMN standing_approvals.granted IS 'How many calls it was given for.';
COMMENT ON COLUMN standing_approvals.remaining IS 'How many are left.';
COMMENT ON COLUMN standing_approvals.revoked_by IS 'Who revoked it.';
COMMENT ON COLUMN standing_approvals.revoked_at IS 'When it was revoked.';
COMMENT ON COLUMN standing_approvals.last_call_id IS 'Audit id of the last call that it let through.';

CREATE INDEX standing_approvals_by_call ON standing_approvals (server, tool, principal, rule);
CREATE INDEX standing_approvals_newest ON standing_approvals (created_at DESC, standing_id DESC);

CREATE TABLE approved_calls (
    server      text COLLATE "C" NOT NULL,
    tool        text COLLATE "C" NOT NULL,
    proposal_id text NOT NULL,
    principal   text NOT NULL,
    arguments   json NOT NULL,
    operator    text NOT NULL,
    approved_at timestamptz NOT NULL,
    PRIMARY KEY (server, tool)
);

COMMENT ON TABLE approved_calls IS 'The last call of each tool that people approved: it stays when its proposal is swept.';
COMMENT ON COLUMN approved_calls.server IS 'The MCP server.';
COMMENT ON COLUMN approved_calls.tool IS 'The tool.';
COMMENT ON COLUMN approved_calls.proposal_id IS 'The proposal that was approved.';
COMMENT ON COLUMN approved_calls.principal IS 'The agent that proposed it.';
COMMENT ON COLUMN approved_calls.arguments IS 'Its arguments with secrets masked.';
COMMENT ON COLUMN approved_calls.operator IS 'Who approved it last.';
COMMENT ON COLUMN approved_calls.approved_at IS 'When.';

CREATE TABLE notices (
    target      text NOT NULL,
    proposal_id text NOT NULL,
    state       text NOT NULL,
    body        json NOT NULL,
    created_at  timestamptz NOT NULL,
    due_at      timestamptz NOT NULL,
    attempts    integer NOT NULL DEFAULT 0,
    sent_at     timestamptz,
    given_up_at timestamptz,
    problem     text,
    PRIMARY KEY (target, proposal_id, state)
);

COMMENT ON TABLE notices IS 'What people are told, one row for each target, proposal and state; sent in the background.';
COMMENT ON COLUMN notices.target IS 'Name of the target in the settings.';
COMMENT ON COLUMN notices.proposal_id IS 'The proposal that it tells of.';
COMMENT ON COLUMN notices.state IS 'The state that it tells of.';
COMMENT ON COLUMN notices.body IS 'What it says, with secrets masked.';
COMMENT ON COLUMN notices.created_at IS 'When it was put here.';
COMMENT ON COLUMN notices.due_at IS 'When it is sent next: whoever sends it moves this on first, so that nobody else does.';
COMMENT ON COLUMN notices.attempts IS 'How often it was tried.';
COMMENT ON COLUMN notices.sent_at IS 'When the target took it.';
COMMENT ON COLUMN notices.given_up_at IS 'When it was given up.';
COMMENT ON COLUMN notices.problem IS 'Why the last try failed.';

CREATE INDEX notices_due ON notices (due_at) WHERE sent_at IS NULL AND given_up_at IS NULL;

ALTER TABLE commits ADD COLUMN token_id text;
COMMENT ON COLUMN commits.token_id IS 'The token that was used; null where the call was held and needed none.';

CREATE VIEW nonces AS
SELECT
    c.nonce, coalesce(c.token_id, c.proposal_id) AS token_id, c.expires_at, c.proposal_id, p.tool AS tool_name,
    p.server, p.principal, c.committed_at AS consumed_at, c.outcome
FROM commits c JOIN proposals p ON p.proposal_id = c.proposal_id;

COMMENT ON VIEW nonces IS 'Every nonce that was used, and for what.';
COMMENT ON COLUMN nonces.nonce IS 'The nonce.';
COMMENT ON COLUMN nonces.token_id IS 'The token that was used; the proposal where the call needed none.';
COMMENT ON COLUMN nonces.expires_at IS 'When the token expires.';
COMMENT ON COLUMN nonces.proposal_id IS 'The proposal that was carried out.';
COMMENT ON COLUMN nonces.tool_name IS 'The tool that was called.';
COMMENT ON COLUMN nonces.server IS 'The MCP server that was called.';
COMMENT ON COLUMN nonces.principal IS 'The agent that called.';
COMMENT ON COLUMN nonces.consumed_at IS 'When it was used.';
COMMENT ON COLUMN nonces.outcome IS 'How the call ended; null until that is known.';

CREATE OR REPLACE FUNCTION interlock_grant_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT SELECT ON interlock_migrations, tool_prompt_baselines, proposals, commits, approvals, standing_approvals,
            approved_calls, notices TO interlock_writer;
        GRANT INSERT ON events, proposals, commits, approvals, standing_approvals, approved_calls, notices
            TO interlock_writer;
        GRANT UPDATE (state, awaited, operator, operator_reason, operator_at, expires_at, approvals) ON proposals
            TO interlock_writer;
        GRANT UPDATE (outcome, ended_at, attempt_id, attempts, question) ON commits TO interlock_writer;
        GRANT UPDATE (remaining, last_call_id, revoked_by, revoked_at) ON standing_approvals TO interlock_writer;
        GRANT UPDATE (proposal_id, principal, arguments, operator, approved_at) ON approved_calls TO interlock_writer;
        GRANT UPDATE (due_at, attempts, sent_at, given_up_at, problem) ON notices TO interlock_writer;
        GRANT DELETE ON proposals, commits, approvals, standing_approvals, notices TO interlock_writer;
        GRANT EXECUTE ON FUNCTION interlock_make_partitions TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON interlock_migrations, tool_prompt_baselines, proposals, commits, approvals, standing_approvals,
            approved_calls, notices, nonces, events, tool_calls, denied_calls, two_phase_ledger, server_behaviour
            TO interlock_reader;
    END IF;
END $$;

SELECT interlock_grant_roles();
