-- Two-phase execution: what was proposed, and the one time each proposal was carried out.
-- A proxy inserts into these tables, reads them, moves states along and sweeps what is over.

CREATE TABLE proposals (
    proposal_id     text PRIMARY KEY,
    server          text NOT NULL,
    tool            text NOT NULL,
    principal       text NOT NULL,
    arguments_hash  text NOT NULL,
    arguments       json NOT NULL,
    rule            text NOT NULL,
    policy_version  text NOT NULL,
    approval        text NOT NULL CHECK (approval IN ('auto', 'human')),
    state           text NOT NULL CHECK (
        state IN ('proposed', 'pending', 'approved', 'rejected', 'expired', 'blocked', 'committed')
    ),
    nonce           text NOT NULL UNIQUE,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    token_seconds   double precision NOT NULL,
    composite_score double precision,
    signals         json NOT NULL,
    absent          json NOT NULL,
    reason          text,
    call_id         text,
    operator        text,
    operator_reason text,
    operator_at     timestamptz,
    call_key        text NOT NULL,
    awaited         boolean NOT NULL
);

COMMENT ON TABLE proposals IS 'Plans for one exact call each, scored. Proxies insert, move the state along, and sweep.';
COMMENT ON COLUMN proposals.proposal_id IS 'Names the proposal; the agent is told it.';
COMMENT ON COLUMN proposals.server IS 'The MCP server that the call is for.';
COMMENT ON COLUMN proposals.tool IS 'The tool that the call is for.';
COMMENT ON COLUMN proposals.principal IS 'Who proposed it; nobody else may commit it.';
COMMENT ON COLUMN proposals.arguments_hash IS 'Hash of the exact arguments; a commit must have the same.';
COMMENT ON COLUMN proposals.arguments IS 'The arguments with secrets masked, as the exact text (json, since jsonb takes no \u0000).';
COMMENT ON COLUMN proposals.rule IS 'Id of the two_phase rule that asked for it.';
COMMENT ON COLUMN proposals.policy_version IS 'Hash of the policy in force when it was proposed.';
COMMENT ON COLUMN proposals.approval IS 'auto: the score decides; human: an operator does.';
COMMENT ON COLUMN proposals.state IS 'proposed or pending, then approved, rejected or expired, then committed; blocked is an end.';
COMMENT ON COLUMN proposals.nonce IS 'The one nonce that every commit token of this proposal carries.';
COMMENT ON COLUMN proposals.created_at IS 'When it was proposed.';
COMMENT ON COLUMN proposals.expires_at IS 'From when on it can be neither decided nor found again by the same call.';
COMMENT ON COLUMN proposals.token_seconds IS 'How long a commit token of it lives.';
COMMENT ON COLUMN proposals.composite_score IS 'The weighted score, 0 to 1, higher is worse; null where no signal was there.';
COMMENT ON COLUMN proposals.signals IS 'The signals behind the score, by name.';
COMMENT ON COLUMN proposals.absent IS 'Signals that were not there, by name, and why.';
COMMENT ON COLUMN proposals.reason IS 'Why it was blocked or sent to an operator: low_integrity or no_signals.';
COMMENT ON COLUMN proposals.call_id IS 'Audit id of the call that proposed it.';
COMMENT ON COLUMN proposals.operator IS 'Who approved or rejected it last.';
COMMENT ON COLUMN proposals.operator_reason IS 'What the operator gave as the reason.';
COMMENT ON COLUMN proposals.operator_at IS 'When the operator decided.';
COMMENT ON COLUMN proposals.call_key IS 'Hash of server, tool, principal and arguments_hash: the exact call.';
COMMENT ON COLUMN proposals.awaited IS 'Whether the same call, proposed again, finds this proposal instead of making another.';

CREATE UNIQUE INDEX proposals_one_awaited_per_call ON proposals (call_key) WHERE awaited;
CREATE INDEX proposals_newest ON proposals (created_at DESC, proposal_id DESC);
CREATE INDEX proposals_newest_by_state ON proposals (state, created_at DESC, proposal_id DESC);
CREATE INDEX proposals_by_expiry ON proposals (expires_at);
COMMENT ON INDEX proposals_one_awaited_per_call IS 'However many propose the same call at once, one proposal waits.';

-- Never partitioned by time: the key must hold among all nonces there are.
CREATE TABLE commits (
    nonce        text PRIMARY KEY,
    proposal_id  text NOT NULL UNIQUE REFERENCES proposals (proposal_id),
    attempt_id   text NOT NULL,
    committed_at timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    outcome      text,
    ended_at     timestamptz,
    attempts     integer NOT NULL,
    question     text
);

COMMENT ON TABLE commits IS 'Consumed nonces: the one carrying-out of each proposal, and how it ended.';
COMMENT ON COLUMN commits.nonce IS 'The nonce; that it is here means that it is consumed.';
COMMENT ON COLUMN commits.proposal_id IS 'The proposal that was carried out.';
COMMENT ON COLUMN commits.attempt_id IS 'Audit id of the call that owns the nonce.';
COMMENT ON COLUMN commits.committed_at IS 'When the nonce was consumed.';
COMMENT ON COLUMN commits.expires_at IS 'When its token expires; the row is kept longer.';
COMMENT ON COLUMN commits.outcome IS 'How the call ended; null until that is known.';
COMMENT ON COLUMN commits.ended_at IS 'When the outcome was known.';
COMMENT ON COLUMN commits.attempts IS 'How often the call was sent: once, and once for each answer to an input_required.';
COMMENT ON COLUMN commits.question IS 'Of input_required: the hash of the state that the client has to send back with its answer.';

CREATE INDEX commits_by_expiry ON commits (expires_at);

CREATE TABLE tool_prompt_baselines (
    server      text COLLATE "C" NOT NULL,
    tool        text COLLATE "C" NOT NULL,
    prompt_hash text NOT NULL,
    set_at      timestamptz NOT NULL,
    set_by      text NOT NULL,
    PRIMARY KEY (server, tool)
);

COMMENT ON TABLE tool_prompt_baselines IS 'The prompt that each tool is meant to be called under, as a hash.';
COMMENT ON COLUMN tool_prompt_baselines.server IS 'The MCP server; empty for every server.';
COMMENT ON COLUMN tool_prompt_baselines.tool IS 'The tool.';
COMMENT ON COLUMN tool_prompt_baselines.prompt_hash IS 'Hash of the prompt''s normal form.';
COMMENT ON COLUMN tool_prompt_baselines.set_at IS 'When it was set.';
COMMENT ON COLUMN tool_prompt_baselines.set_by IS 'Who set it.';
