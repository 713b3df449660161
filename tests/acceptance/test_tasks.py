"""Tasks of both revisions, through Interlock, over HTTP and stdio.

2025-11-25: server-everything and the TypeScript SDK's client. 2026-07-28: the Python SDK's server with the tasks
extension, and messages as the conformance suite writes them (`make conformance` runs that suite).
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.servers.python_tasks import CAPABILITIES, ENDED, EXTENSION, SECRET
from tests.support.harness import Interlock, environment, seed_cache, start_interlock, start_python_server
from tests.support.node_tools import MODULES, NodeClients, node, start_everything
from tests.support.processes import module_command
from tests.support.stdio_harness import run_command, start_run
from tests.support.timeouts import PATIENCE

type Ask = Callable[..., dict[str, Any]]

MASKED = "[secret:"
RULES = """\
version: 1
default: allow
rules:
  - {id: scrub, action: redact, tools: [read_secret, simulate-research-query], on: [result], detectors: [secrets]}
"""
DENYING = """\
  - {id: no-questions, description: Nobody is asked, action: deny, methods: [elicitation/create]}
  - {id: no-answers, action: deny, methods: [response], when: {arg: result.content.value, equals: forbidden}}
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    CAPABILITIES: {"elicitation": {}, "extensions": {EXTENSION: {}}},
}


def http_asker(url: str) -> Ask:
    """Return a function that sends each request on a connection of its own: any worker may get it."""
    numbers = iter(range(1, 10_000))

    def ask(method: str, mcp_name: str | None = None, **params: Any) -> dict[str, Any]:
        named = mcp_name if mcp_name is not None else params.get("taskId") or params["name"]
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": named}
        message = {"jsonrpc": "2.0", "id": next(numbers), "method": method, "params": {**params, "_meta": META}}
        accept = {"accept": "application/json, text/event-stream"}
        answer = httpx2.post(f"{url}/mcp", json=message, headers=headers | accept, timeout=PATIENCE, trust_env=False)
        body = answer.text.partition("data: ")[2] if "event-stream" in answer.headers["content-type"] else answer.text
        found: dict[str, Any] = json.loads(body)
        return found

    return ask


@pytest.fixture(scope="module")
def task_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_python_server("python_tasks", tmp_path_factory.mktemp("tasks")) as server:
        yield server.url


@pytest.fixture(scope="module", params=["http", "stdio"])
def ask(request: pytest.FixtureRequest, task_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Return a way to the task server behind an Interlock that masks some results; over HTTP it has two workers."""
    folder = tmp_path_factory.mktemp("proxy")
    if request.param == "http":
        with start_interlock(
            folder, mode=f"reverse:{task_server}", policy=RULES + DENYING, flags=["--workers", "2"]
        ) as proxy:
            yield http_asker(proxy.url)
        return
    command = module_command("tests.servers.python_tasks", "stdio", str(folder / "log"), env=environment())
    with start_run(folder, command, policy=RULES + DENYING) as run:
        numbers = iter(range(1, 10_000))

        def over_stdio(method: str, **params: Any) -> dict[str, Any]:
            found: dict[str, Any] = run.ask(method, next(numbers), **params, _meta=META)
            return found

        yield over_stdio


def ended(ask: Ask, task_id: str, *statuses: str) -> dict[str, Any]:
    """Return a task once it has one of `statuses`."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = ask("tasks/get", taskId=task_id)
        if "error" in found or found["result"]["status"] in (statuses or ENDED):
            return found
    raise AssertionError(f"task {task_id} does not end")


def test_a_tasks_result_is_masked_by_the_rules_of_the_call_that_made_it(ask: Ask) -> None:
    for _ in range(6):  # each request has its connection, so both workers make tasks and both are asked for them
        task_id = ask("tools/call", name="read_secret", arguments={})["result"]["taskId"]
        found = json.dumps(ended(ask, task_id))
        assert SECRET not in found
        assert MASKED in found


def test_a_task_of_another_tool_is_not_masked_by_rules_that_are_not_its_own(ask: Ask) -> None:
    created = ask("tools/call", name="slow_compute", arguments={"label": SECRET})["result"]
    for _ in range(4):
        assert SECRET in json.dumps(ended(ask, created["taskId"]))


def test_a_task_that_nobody_knows_is_for_the_server_to_refuse(ask: Ask) -> None:
    refused = ask("tasks/get", taskId="nobody-knows-it")
    assert refused["error"]["code"] == -32602


def test_a_question_inside_a_task_is_refused_as_one_on_its_own(ask: Ask) -> None:
    task_id = ask("tools/call", name="confirm_delete", arguments={"filename": "x"})["result"]["taskId"]
    found = ended(ask, task_id, "input_required")
    assert (found["error"]["code"], found["error"]["data"]["rule"]) == (40301, "no-questions")
    assert "Delete x?" not in json.dumps(found)


def test_an_answer_inside_an_update_is_refused_as_one_on_its_own(ask: Ask) -> None:
    task_id = ask("tools/call", name="multi_input", arguments={})["result"]["taskId"]
    answers = {"first": {"content": {"value": "forbidden"}}}
    refused = ask("tasks/update", taskId=task_id, inputResponses=answers)
    assert refused["error"]["data"]["rule"] == "no-answers"
    answers = {"first": {"action": "accept", "content": {"value": "x"}}}
    refused = ask("tasks/update", taskId=task_id, inputResponses=answers)
    assert refused["error"]["data"]["rule"] == "no-questions", "an answer to what nobody may be asked"
    passed = ask("tasks/update", taskId=task_id, inputResponses={"first": {"value": "x"}})
    assert passed["result"]["resultType"] == "complete"


def test_a_task_is_cancelled(ask: Ask) -> None:
    task_id = ask("tools/call", name="slow_compute", arguments={"seconds": 4 * PATIENCE})["result"]["taskId"]
    assert ask("tasks/cancel", taskId=task_id)["result"]["resultType"] == "complete"
    assert ended(ask, task_id)["result"]["status"] == "cancelled"


@pytest.fixture(scope="module")
def proxy(task_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("named"), mode=f"reverse:{task_server}", policy=RULES) as running:
        yield running


def test_the_name_in_the_head_is_the_tasks_id(proxy: Interlock) -> None:
    ask = http_asker(proxy.url)
    task_id = ask("tools/call", name="confirm_delete", arguments={"filename": "x"})["result"]["taskId"]
    encoded = f"=?base64?{base64.b64encode(task_id.encode()).decode()}?="
    asked = ended(ask, task_id, "input_required")["result"]
    assert asked["inputRequests"]["confirm"]["method"] == "elicitation/create"
    answers = {"confirm": {"action": "accept", "content": {"confirm": "yes"}}}
    for method, params in (
        ("tasks/get", {}),
        ("tasks/update", {"inputResponses": answers}),
        ("tasks/cancel", {}),
    ):
        # The server behind compares the plain form alone, so what it says to the other is its own.
        refused = ask(method, encoded, taskId=task_id, **params)
        assert refused.get("error", {}).get("message") in (None, "Mcp-Name is not the task's id")
        for wrong in ("another-task", "", f"=?base64?{base64.b64encode(b'other').decode()}?="):
            found = ask(method, wrong, taskId=task_id, **params)["error"]
            assert (found["code"], found["data"]["reason"]) == (-32020, "header_mismatch")
        assert "result" in ask(method, taskId=task_id, **params)


@pytest.fixture(scope="module")
def clients() -> Iterator[NodeClients]:
    with NodeClients() as running:
        yield running


@pytest.mark.parametrize("denied", [False, True], ids=["allowed", "denied"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_tasks_of_2025_11_25_pass_with_their_questions_and_masks(
    clients: NodeClients, tmp_path: Path, transport: str, denied: bool
) -> None:
    policy = RULES + DENYING if denied else RULES
    if transport == "http":
        with (
            start_everything("streamableHttp", tmp_path) as server,
            start_interlock(tmp_path, mode=f"reverse:{server.url}", policy=policy) as running,
        ):
            report = clients.order("tasks", {"url": f"{running.url}/mcp", "topic": f"keys like {SECRET}"})
    else:
        (tmp_path / "policy.yaml").write_text(policy)
        seed_cache(tmp_path / "state")
        entry = MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
        command = run_command(tmp_path / "state", tmp_path / "policy.yaml", [node(), str(entry), "stdio"])
        report = clients.order("tasks", {"command": command, "topic": f"keys like {SECRET}"})
    said = json.dumps(report)
    assert SECRET not in said
    assert MASKED in json.dumps(report["result"])
    assert report["got"]["status"] == "completed"
    assert report["taskId"] in report["listed"]
    assert report["cancelled"] == "cancelled"
    assert bool(report["asked"]) is not denied
    assert ("elicitation unavailable" in said) is denied, "the server was told that its question was refused"
