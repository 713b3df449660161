"""Fixtures that many tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import structlog

from proxy.system import log_setup
from tests.support import ca_trust, compile_once
from tests.support.harness import Certificates, make_certificates
from tests.support.processes import COMPILED

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

TESTS = Path(__file__).resolve().parent
# By measured time, but browsers apart from each other: two of them take all of a small machine.
LONGEST = (
    "test_shell_blocks.py",
    "bypass/test_bypass.py",
    "daemon/test_fleet_behind_pooler.py",
    "daemon/test_vault_answers.py",
    "daemon/test_vault_mcp.py",
    "daemon/test_vault.py",
    "daemon/test_pins.py",
    "daemon/test_rollout.py",
    "probe/test_probe.py",
    "stdio/test_runner.py",
    "test_container.py",
    "acceptance/test_python_sdk.py",
    "console/test_in_browser.py",
    "acceptance/test_tasks.py",
    "acceptance/test_typescript_clients.py",
    "commands/test_call.py",
    "console/test_pages_in_browser.py",
    "daemon/test_vault_proof.py",
    "daemon/test_stalls.py",
    "trace/test_live.py",
    "test_examples.py",
    "daemon/test_limits.py",
    "acceptance/test_stdio.py",
    "wire/test_body_work.py",
    "console/test_oidc_page.py",
    "console/test_approvals_in_browser.py",
    "commands/test_decide.py",
    "faults/test_faults.py",
    "telemetry/test_through_proxy.py",
    "daemon/test_refusals_recorded.py",
    "confine/test_launch.py",
    "daemon/test_two_phase.py",
    "bypass/test_stdio.py",
    "commands/test_probe.py",
    "test_walk_script.py",
    "test_wheel.py",
    "test_bench.py",
    "acceptance/test_beyond_calls.py",
    "daemon/test_non_mcp.py",
    "commands/test_json_output.py",
    "daemon/test_custom_detectors.py",
    "acceptance/test_two_phase.py",
    "acceptance/test_approval.py",
    "acceptance/test_learning.py",
    "console/test_learning_in_browser.py",
    "commands/test_run_sandbox.py",
    "daemon/test_agent_identity.py",
    "daemon/test_idle_connections.py",
    "runtime/test_supervisor.py",
    "test_launcher.py",
    "support/test_processes.py",
    "policy/test_cost.py",
    "wire/test_hidden_request.py",
    "store/test_proposal_store.py",
    "audit/test_event_store.py",
    "redact/test_detectors.py",
    "daemon/plain/test_limits.py",
    "daemon/test_failures.py",
    "runtime/test_take_over.py",
)


def pytest_configure() -> None:
    # A shell has what it starts in the background ignore some, nohup another, and every process here inherits that.
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first: one left for the end would run alone, with nothing for the others to do."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


# Examples are found on any machine, however busy; tests that need more of them say so themselves.
hypothesis.settings.register_profile("house", deadline=None, max_examples=40)
hypothesis.settings.load_profile("house")
ca_trust.share()
compile_once.share(COMPILED)


@pytest.fixture(autouse=True)
def plain_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log lines without rich's tracebacks, which take a second each; no logger keeps another test's configuration."""
    monkeypatch.setattr(log_setup, "KEEP_LOGGERS", False)
    structlog.reset_defaults()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ]
    )


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA and a leaf certificate for servers on loopback."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real Postgres server, this worker's own."""
    from tests.support.postgres import Postgres

    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def database_url(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty Postgres database with our schema."""
    with postgres.lend() as url:
        yield url
