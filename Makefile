# Everything a newcomer needs: `make run` starts the proxy, `make test` tests it.
# Both set themselves up on a fresh machine: Python 3.12+ is found, .venv made,
# and the hashed lock installed.

ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Six on two processors: much of a test is waiting, for a process to start or to end.
PROCESSES ?= 6
FORKED := -p tests.support.fork_workers --forks $(PROCESSES)
NODE := tests/node/node_modules/.installed
AGENTDOJO := .venv-agentdojo

# Hundreds of processes read the bytecode that the first of them writes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

.PHONY: run
run: $(VENV)/.run ## start the proxy on the embedded default; ARGS='--listen 127.0.0.1:9000' passes flags on
	@exec $(BIN)/interlock up --console-link always $(ARGS)

.PHONY: setup
setup: $(VENV)/.run ## only install what `make run` needs

.PHONY: test
test: $(VENV)/.dev system-packages $(NODE) ## all tests; ARGS='-k sse' passes flags on
	$(BIN)/python -m pytest $(FORKED) $(ARGS)

.PHONY: test-plain
test-plain: $(VENV)/.dev system-packages $(NODE) ## all tests without what is there for speed alone (the setting `fast` off); `make test` has three files of it
	INTERLOCK_FAST=off $(BIN)/python -m pytest $(FORKED) $(ARGS)

.PHONY: test-fast
test-fast: $(VENV)/.dev system-packages $(NODE) ## the tests that start no proxy, about a minute: for the inner loop
	$(BIN)/python -m pytest $(FORKED) $(addprefix --ignore=tests/,$(SLOW)) $(ARGS)

# These start proxies, other processes, Postgres, traced servers, namespaces or containers for most of their tests.
SLOW := acceptance admin_api bypass commands confine console/test_in_browser.py console/test_server.py daemon faults probe runtime sandbox soak stdio store support \
	audit/test_event_store_postgres.py telemetry/test_through_proxy.py core/test_json_codec_reading.py redact/test_reloader.py trace/test_live.py \
	trace/test_live_trace.py wire/test_body_work.py test_bench.py test_cli.py test_container.py \
	test_conformance_script.py test_deploy.py test_docs.py test_entrypoint.py test_examples.py test_shell_blocks.py \
	test_walk_script.py test_wheel.py

.PHONY: bypass
bypass: $(VENV)/.dev system-packages $(NODE) ## the whole bypass table: every server in reverse mode, too, with one worker, with two, and in the fast lane
	TEST_WORKERS=1 BYPASS=full $(BIN)/python -m pytest tests/bypass/test_bypass.py $(ARGS)
	TEST_WORKERS=2 BYPASS=full $(BIN)/python -m pytest tests/bypass/test_bypass.py $(ARGS)
	BYPASS_WARM=1 BYPASS=full $(BIN)/python -m pytest tests/bypass/test_bypass.py $(ARGS)

.PHONY: test-layers
test-layers: $(VENV)/.dev system-packages $(NODE) ## acceptance and bypass tests without the fast lane: every call passes mitmproxy's layers
	INTERLOCK_FAST_LANE=off $(BIN)/python -m pytest tests/acceptance tests/bypass $(ARGS)

.PHONY: lane
lane: $(VENV)/.dev ## made-up exchanges through the fast lane and without it, side by side; ARGS='--jobs 2 --count 1000000' for a night, ARGS='--grammar 1000000' for its readers alone
	$(BIN)/python scripts/lane_fuzz.py $(ARGS)

.PHONY: postgres-lines
postgres-lines: $(VENV)/.dev ## what lies between a proxy and its Postgres: PgBouncer, TLS, round trips; and every change that verification finds
	@scripts/system-packages pgbouncer /usr/lib/postgresql/15/bin/postgres
	TRAIL=full $(BIN)/python -m pytest -n 0 tests/store/test_postgres_lines.py tests/audit/test_range_check.py $(ARGS)

.PHONY: sinks
sinks: $(VENV)/.dev ## three nodes of JetStream and a ClickHouse are killed while events flow: 0 lost, 0 doubled
	SINKS=full $(BIN)/python -m pytest -n 0 -s tests/sinks/test_kills.py $(ARGS)

.PHONY: sandbox-compare
sandbox-compare: $(VENV)/.dev $(NODE) ## the same acts bare, in srt (from npm) and by `interlock run`, as an ordinary user; the table of docs/sandbox.md
	@scripts/system-packages bwrap socat rg strace nft curl
	$(BIN)/python -m bench.sandbox_compare $(ARGS)

.PHONY: learned
learned: $(VENV)/.dev system-packages $(NODE) tests/node/playwright/node_modules/.installed ## real servers, Playwright's among them, in the sandboxes that were learned of them; `make test` has two
	@scripts/system-packages chromium
	LEARNED=full $(BIN)/python -m pytest -n 0 tests/commands/test_learned_profiles.py $(ARGS)

.PHONY: check
check: ## lint + types + tests: what CI runs
	@$(MAKE) --no-print-directory --jobs 3 lint types test

.PHONY: lint
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: types
types: $(VENV)/.dev
	$(BIN)/mypy

.PHONY: format
format: $(VENV)/.dev ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: walk
walk: $(VENV)/.dev ## which files one allowed call passes through; draws docs/walk.svg
	$(BIN)/python scripts/walk.py $(ARGS)

.PHONY: profiles
profiles: $(VENV)/.dev ## what each profile contains of every class of attack, and false alarms; writes the table of docs/profiles.md
	$(BIN)/python scripts/profiles_report.py $(ARGS)

.PHONY: conformance
conformance: $(VENV)/.dev $(NODE) ## the MCP conformance suite, direct and through the proxy, side by side
	$(BIN)/python scripts/conformance.py $(ARGS)

.PHONY: faults
faults: $(VENV)/.dev ## what kills, outages, cuts, full disks and clock jumps lose: nothing (about 5 minutes)
	$(BIN)/python scripts/faults.py $(ARGS)

.PHONY: fleet
fleet: $(VENV)/.dev ## three replicas behind a balancer: kills, rolling restarts and policies lose nothing (about 3 minutes); ARGS='--minutes 10' for longer
	$(BIN)/python scripts/fleet.py $(ARGS)

.PHONY: soak
soak: $(VENV)/.dev ## 50,000 calls, idle connections and slow heads: does memory stay flat? (about 3 minutes)
	$(BIN)/python scripts/soak.py $(ARGS)

.PHONY: incoming
incoming: $(VENV)/.dev ## recall and false alarms of the detector of injected text; ARGS='FOLDER' has the material (see the script)
	$(BIN)/python scripts/incoming_report.py $(ARGS)

.PHONY: detectors
detectors: $(VENV)/.dev ## precision and recall of every detector on the labelled set, and recall on public corpora; ARGS='--clone' fetches them
	$(BIN)/python scripts/detector_report.py
	$(BIN)/python scripts/detector_corpora.py $(ARGS)

.PHONY: prove
prove: $(VENV)/.dev ## policy diff --prove beside brute force on 10,000 random pairs of policies; about 12 minutes of one core
	PYTHONPATH=. $(BIN)/python scripts/prove_policies.py $(or $(ARGS),10000 1)

.PHONY: flows
flows: $(VENV)/.dev $(AGENTDOJO)/.installed ## AgentDojo's tasks and injections through the gate, without a model; about 5 minutes, most of it to install
	$(AGENTDOJO)/bin/python bench/agentdojo/record.py > $(AGENTDOJO)/runs.jsonl
	$(BIN)/python -m bench.agentdojo.replay $(AGENTDOJO)/runs.jsonl $(ARGS)
	$(BIN)/python -m bench.agentdojo.wire $(AGENTDOJO)/runs.jsonl

# AgentDojo brings the clients of many models along, so it has an environment and a lock of its own.
$(AGENTDOJO)/.installed: requirements-agentdojo.lock | $(VENV)/.dev
	$(BIN)/python -m venv $(AGENTDOJO)
	$(AGENTDOJO)/bin/pip --quiet --disable-pip-version-check install --require-hashes --no-deps -r requirements-agentdojo.lock
	touch $@

.PHONY: bench
bench: $(VENV)/.dev ## every workload beside every competitor, about 20 minutes; writes bench/results and docs/performance.md
	$(BIN)/python -m bench $(ARGS)

.PHONY: bench-quick
bench-quick: $(VENV)/.dev ## the same in under 2 minutes: what the goals need
	$(BIN)/python -m bench --quick $(ARGS)

.PHONY: scale
scale: $(VENV)/.dev ## the trail at 5 M events: questions at 10x steps, each sink, verification; about 15 minutes, writes bench/results/scale.json
	$(BIN)/python -m bench.scale $(ARGS)

.PHONY: bench-compare
bench-compare: $(VENV)/.dev ## this checkout beside another one, in one run: make bench-compare OTHER=../before
	$(BIN)/python -m bench.compare $(OTHER) $(ARGS)

.PHONY: bench-parts
bench-parts: $(VENV)/.dev ## what single parts cost: policy, redaction, delays, two-phase, audit, store, tracing
	@for part in policy redact delay two_phase audit events trace; do echo "== $$part"; $(BIN)/python -m bench.$$part $(ARGS) || exit 1; done

.PHONY: limits
limits: $(VENV)/.dev ## limits are exact and halts quick: the tests that show it, then what a call and a halt take
	$(BIN)/python -m pytest -q tests/store/test_limit_store_sqlite.py tests/store/test_limit_store_postgres.py tests/gate/test_limits.py tests/daemon/test_stop_button.py
	$(BIN)/python -m bench.limits $(ARGS)

.PHONY: demo
demo: $(VENV)/.run ## a tour in under a minute: allowed, denied, redacted, two-phase, watched, looked at, recorded
	@scripts/system-packages strace
	@$(BIN)/python examples/demo/run.py $(ARGS)

.PHONY: tour
tour: $(VENV)/.run ## the demo, and then the console stays open with an agent at work behind it
	@scripts/system-packages strace
	@$(BIN)/python examples/demo/run.py --console

.PHONY: demo-picture
demo-picture: $(VENV)/.run ## run the tour and draw docs/demo.svg
	$(BIN)/python examples/demo/run.py --picture docs/demo.svg

.PHONY: example
example: $(VENV)/.run ## ten prompts for ten tools of mixed risk, two-phase where the policy says so
	@$(BIN)/python examples/two_phase/run.py

.PHONY: docs
docs: $(VENV)/.dev ## build the documentation as a site into site/, without the network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)

.PHONY: pictures
pictures: $(VENV)/.dev ## draw the pictures of docs/pictures
	$(BIN)/python scripts/pictures.py

.PHONY: screenshots
screenshots: $(VENV)/.dev system-packages ## take the pictures of the console into docs/pictures
	$(BIN)/python scripts/screenshots.py

.PHONY: man
man: $(VENV)/.dev ## write the manual page man/interlock.1 from the tree of commands
	$(BIN)/interlock man > man/interlock.1

.PHONY: recording
recording: $(VENV)/.dev ## draw docs/first-hour.svg from what setup, a denied call and audit show really print
	$(BIN)/python scripts/recording.py docs/first-hour.svg

.PHONY: wheel
wheel: $(VENV)/.dev ## build the wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist

.PHONY: lock
lock: $(VENV)/.dev ## resolve the dependencies again
	$(BIN)/uv pip compile $(LOCK_FLAGS) --group build pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile $(LOCK_FLAGS) --group build --group dev --extra sinks pyproject.toml -c requirements.lock -o requirements-dev.lock
	echo agentdojo | $(BIN)/uv pip compile $(LOCK_FLAGS) - -o requirements-agentdojo.lock

LOCK_FLAGS := --quiet --upgrade --universal --python-version 3.12 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links

.PHONY: system-packages
system-packages:
	@scripts/system-packages

.PHONY: clean
clean: ## remove what the targets made
	rm -rf $(VENV) dist build site tests/node/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis

# .run holds the product alone; .dev what its tests need as well, with the same versions of what both hold.
# What is installed, and how far it is, is said by the script.
INSTALL = @echo "Interlock: looking for Python 3.12 or newer"; python=$$(scripts/find-python) && $$python scripts/install.py

$(VENV)/.run: requirements.lock pyproject.toml
	$(INSTALL) requirements.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml
	$(INSTALL) requirements-dev.lock
	@touch $@ $(VENV)/.run

$(NODE) tests/node/playwright/node_modules/.installed: %/node_modules/.installed: %/package.json
	cd $* && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@
