-- Limits: what is used of budgets. Halts: who may make no calls, since when, by whom and why.

CREATE TABLE limit_uses (
    use_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    budget     text COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL,
    amount     numeric NOT NULL CHECK (amount >= 0),
    total      numeric NOT NULL,
    expires_at timestamptz NOT NULL,
    call_id    text NOT NULL,
    UNIQUE (budget, at)
);

COMMENT ON TABLE limit_uses IS 'One row for each call that counts against a limit.';
COMMENT ON COLUMN limit_uses.use_id IS 'Names the row.';
COMMENT ON COLUMN limit_uses.budget IS 'The limit, and whose share of it.';
COMMENT ON COLUMN limit_uses.at IS 'When, by the clock of the database; no two rows of a budget have the same.';
COMMENT ON COLUMN limit_uses.amount IS '1 for a call, or units of 10^-18 of a sum.';
COMMENT ON COLUMN limit_uses.total IS 'The sum of the amounts up to this row: what a window holds is the difference of two rows.';
COMMENT ON COLUMN limit_uses.expires_at IS 'From when on it counts no more.';
COMMENT ON COLUMN limit_uses.call_id IS 'Audit id of the call.';

CREATE INDEX limit_uses_by_call ON limit_uses (call_id);
CREATE INDEX limit_uses_by_expiry ON limit_uses (expires_at);

CREATE TABLE limit_places (
    budget     text COLLATE "C" NOT NULL,
    call_id    text NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (budget, call_id)
);

COMMENT ON TABLE limit_places IS 'Calls under way that take a place of a concurrency limit.';
COMMENT ON COLUMN limit_places.budget IS 'The limit, and whose share of it.';
COMMENT ON COLUMN limit_places.call_id IS 'Audit id of the call.';
COMMENT ON COLUMN limit_places.expires_at IS 'Until when the place is taken, unless the proxy renews it.';

CREATE INDEX limit_places_by_call ON limit_places (call_id);

CREATE FUNCTION interlock_limit_reserve(wanted_call text, charges jsonb, charging boolean, lease float8)
RETURNS TABLE (number integer, used numeric, retry_after float8) LANGUAGE plpgsql AS $$
DECLARE
    c record;
    moment timestamptz;
    last_at timestamptz;
    last_total numeric;
    base numeric;
    room_at timestamptz;
    refused boolean := false;
BEGIN
    -- One after the other for each budget, in one order for all callers: nobody waits for somebody who waits for him.
    -- Two budgets whose hashes are alike only wait for each other.
    FOR c IN SELECT DISTINCT e ->> 'budget' AS budget FROM jsonb_array_elements(charges) e ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(c.budget, 8));
    END LOOP;
    -- Charged before a connection broke: this call must not cost two.
    IF charging AND (EXISTS (SELECT 1 FROM limit_uses u WHERE u.call_id = wanted_call)
                     OR EXISTS (SELECT 1 FROM limit_places p WHERE p.call_id = wanted_call)) THEN
        RETURN;
    END IF;
    FOR c IN SELECT (o - 1)::integer AS place, e ->> 'budget' AS budget, (e ->> 'amount')::numeric AS amount,
                    (e ->> 'most')::numeric AS most, (e ->> 'seconds')::float8 AS seconds, (e ->> 'blocks')::boolean AS blocks
             FROM jsonb_array_elements(charges) WITH ORDINALITY AS t (e, o) LOOP
        moment := clock_timestamp();
        retry_after := NULL;
        IF c.seconds = 0 THEN
            SELECT count(*) INTO used FROM limit_places p WHERE p.budget = c.budget AND p.expires_at > moment;
            retry_after := 1;
        ELSE
            SELECT u.at, u.total INTO last_at, last_total FROM limit_uses u
            WHERE u.budget = c.budget ORDER BY u.at DESC LIMIT 1;
            moment := greatest(moment, last_at);
            SELECT u.total - u.amount INTO base FROM limit_uses u
            WHERE u.budget = c.budget AND u.at > moment - make_interval(secs => c.seconds) ORDER BY u.at LIMIT 1;
            used := coalesce(last_total - base, 0);
            IF used + c.amount > c.most AND c.amount <= c.most THEN
                SELECT u.at INTO room_at FROM limit_uses u
                WHERE u.budget = c.budget AND u.at > moment - make_interval(secs => c.seconds)
                  AND u.total >= last_total + c.amount - c.most ORDER BY u.at LIMIT 1;
                retry_after := extract(epoch FROM room_at + make_interval(secs => c.seconds) - moment);
            END IF;
        END IF;
        IF used + c.amount > c.most THEN
            number := c.place;
            refused := refused OR c.blocks;
            RETURN NEXT;
        END IF;
    END LOOP;
    IF refused OR NOT charging THEN
        RETURN;
    END IF;
    FOR c IN SELECT e ->> 'budget' AS budget, (e ->> 'amount')::numeric AS amount, (e ->> 'seconds')::float8 AS seconds
             FROM jsonb_array_elements(charges) e LOOP
        IF c.seconds = 0 THEN
            INSERT INTO limit_places (budget, call_id, expires_at)
            VALUES (c.budget, wanted_call, clock_timestamp() + make_interval(secs => lease))
            ON CONFLICT (budget, call_id) DO NOTHING;
        ELSE
            last_at := NULL;
            last_total := 0;
            SELECT u.at, u.total INTO last_at, last_total FROM limit_uses u
            WHERE u.budget = c.budget ORDER BY u.at DESC LIMIT 1;
            moment := greatest(clock_timestamp(), last_at + interval '1 microsecond');
            INSERT INTO limit_uses (budget, at, amount, total, expires_at, call_id)
            VALUES (c.budget, moment, c.amount, coalesce(last_total, 0) + c.amount,
                    moment + make_interval(secs => c.seconds), wanted_call);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION interlock_limit_reserve IS
    'Charge a call to all of its budgets, or to none where one that blocks has no room; return those without room.';

CREATE FUNCTION interlock_limit_give_back(wanted_call text, budgets text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
    gone record;
BEGIN
    FOR name IN SELECT DISTINCT b FROM unnest(budgets) b ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(name, 8));
        DELETE FROM limit_places WHERE budget = name AND call_id = wanted_call;
        FOR gone IN DELETE FROM limit_uses u WHERE u.budget = name AND u.call_id = wanted_call RETURNING u.at, u.amount LOOP
            UPDATE limit_uses SET total = total - gone.amount WHERE budget = name AND at > gone.at;
        END LOOP;
    END LOOP;
END $$;
COMMENT ON FUNCTION interlock_limit_give_back IS 'Take back what a call was charged, because it was not made.';

CREATE TABLE halts (
    halt_id    text PRIMARY KEY,
    agent      text,
    server     text,
    tool       text,
    cut        integer NOT NULL,
    reason     text NOT NULL,
    operator   text NOT NULL,
    created_at timestamptz NOT NULL,
    origin     text NOT NULL
);

COMMENT ON TABLE halts IS 'Who may make no calls. Where agent, server or tool is null, all are meant.';
COMMENT ON COLUMN halts.halt_id IS 'Names the halt.';
COMMENT ON COLUMN halts.agent IS 'The agent that is halted; null: every agent.';
COMMENT ON COLUMN halts.server IS 'The server that may not be called; null: every server.';
COMMENT ON COLUMN halts.tool IS 'The tool that may not be called; null: every tool, and all other traffic.';
COMMENT ON COLUMN halts.cut IS '1: calls that were under way are cut; 0: they finish.';
COMMENT ON COLUMN halts.reason IS 'Why.';
COMMENT ON COLUMN halts.operator IS 'Who halted it.';
COMMENT ON COLUMN halts.created_at IS 'When.';
COMMENT ON COLUMN halts.origin IS 'How it came about: command, api, console, signal.';

CREATE TABLE halt_state (
    id         integer PRIMARY KEY CHECK (id = 1),
    store_id   text NOT NULL,
    generation bigint NOT NULL
);

COMMENT ON TABLE halt_state IS 'Counts the changes of halts, so that nobody takes an older list for a newer one.';
COMMENT ON COLUMN halt_state.id IS 'There is one row.';
COMMENT ON COLUMN halt_state.store_id IS 'Names this database.';
COMMENT ON COLUMN halt_state.generation IS 'How often halts have changed.';

CREATE FUNCTION interlock_tell_halts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('interlock_halts', NEW.generation::text);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION interlock_tell_halts IS 'Tells every replica that listens that halts have changed.';
CREATE TRIGGER halts_changed AFTER UPDATE ON halt_state FOR EACH ROW EXECUTE FUNCTION interlock_tell_halts();

CREATE FUNCTION interlock_grant_limit_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_writer') THEN
        GRANT SELECT, INSERT, DELETE ON limit_uses, limit_places, halts TO interlock_writer;
        GRANT UPDATE (total) ON limit_uses TO interlock_writer;
        GRANT UPDATE (expires_at) ON limit_places TO interlock_writer;
        GRANT SELECT, INSERT, UPDATE ON halt_state TO interlock_writer;
        GRANT EXECUTE ON FUNCTION interlock_limit_reserve, interlock_limit_give_back TO interlock_writer;
    END IF;
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'interlock_reader') THEN
        GRANT SELECT ON limit_uses, limit_places, halts, halt_state TO interlock_reader;
    END IF;
END $$;
COMMENT ON FUNCTION interlock_grant_limit_roles IS
    'Give interlock_writer and interlock_reader their rights on limits and halts, where these roles are there.';
REVOKE EXECUTE ON FUNCTION interlock_limit_reserve, interlock_limit_give_back, interlock_grant_limit_roles FROM PUBLIC;

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
    PERFORM interlock_grant_limit_roles();
END $$;

SELECT interlock_grant_roles();
