"""Secrets planted in what passes through a real proxy are found nowhere in what it keeps: files, tables, logs."""

from __future__ import annotations

import base64
import json
import secrets
import string
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import apsw
import pytest

from tests.daemon.test_responses import LAST, chunk, chunked_head, request, response, scripted
from tests.support.harness import Interlock, start_interlock
from tests.support.postgres import Postgres
from tests.support.raw_socket import send_raw

POLICIES = {
    "unmasked on the wire": "version: 1\ndefault: allow\nrules:\n  - {id: no, action: deny, tools: [danger]}\n",
    "masked on the wire": """\
version: 1
default: allow
rules:
  - {id: no, action: deny, tools: [danger]}
  - {id: scrub, action: redact, tools: ["*"], on: [arguments, result], detectors: [secrets, pii.card]}
  - {id: never, action: redact, redact: deny, tools: [strict], on: [arguments, result], detectors: [secrets]}
""",
}
Plant = Callable[[], str]


class Planter:
    """Makes secrets, each one new, and remembers them."""

    def __init__(self) -> None:
        self.planted: list[str] = []

    def token(self) -> str:
        return self._remember("ghp_" + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(36)))

    def key(self) -> str:
        return self._remember("AKIA" + "".join(secrets.choice(string.ascii_uppercase) for _ in range(16)))

    def _remember(self, secret: str) -> str:
        self.planted.append(secret)
        return secret

    def spellings(self) -> dict[bytes, str]:
        """Return every secret as it may be written down."""
        found: dict[bytes, str] = {}
        for secret in self.planted:
            plain = secret.encode()
            found |= dict.fromkeys((plain, plain[4:], plain.hex().encode(), plain[::-1]), secret)
            for before in range(3):  # base64 of it, wherever it stands in a longer text
                encoded = base64.b64encode(bytes(before) + plain)
                found[encoded[4:-4]] = secret
        return found


def call(tool: str, arguments: object, method: str = "tools/call") -> bytes:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def result(text: str, **more: object) -> bytes:
    value = {"content": [{"type": "text", "text": text}], **more}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode()


def shots(plant: Plant) -> list[tuple[bytes, bytes]]:
    """Return what clients send, and what the server answers."""
    fine = result("fine")
    encoded = base64.b64encode(f"token: {plant()}".encode()).decode()
    return [
        (call("note", {"text": f"my token is {plant()}, keep it"}), fine),
        (call("note", {"deep": [{"list": [plant(), {"more": f"x={plant()}"}]}]}), fine),
        (call("note", {plant(): "as a name"}), fine),
        (call("note", {"text": encoded}), fine),
        (call("note", {"text": quote(f"?key={plant()}&a=b")}), fine),
        (call("note", {"large": f"{'x ' * 200_000}{plant()}{' y' * 200_000}"}), fine),
        (call("danger", {"text": plant()}), fine),
        (call("strict", {"text": plant()}), fine),
        (call("summary", {"text": plant()}, "prompts/get"), fine),
        (call("fetch", {}), result(f"here it is: {plant()}")),
        (call("fetch", {}), result("x", structuredContent={"deep": [{plant(): plant()}]})),
        (call("fetch", {}), result(f"failed with {plant()}", isError=True)),
        (call("strict", {}), result(plant())),
        (
            call("fetch", {}),
            json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": plant()}}).encode(),
        ),
        (call("fetch", {}), b"{broken " + plant().encode()),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x" ' + plant().encode(), fine),
        (b'{"id": 1, "id": 2, "method": "tools/call", "params": {"a": "' + plant().encode() + b'"}}', fine),
        (json.dumps({"plain": "request", "token": plant()}).encode(), b'{"ok": true}'),
    ]


def fire(interlock: Interlock, plant: Plant) -> None:
    for number, (body, answer) in enumerate(shots(plant)):
        event = b"data: " + answer + b"\n\n"
        steps = [chunked_head(), chunk(event), LAST] if number % 2 else [response(answer, "application/json")]
        with scripted(*steps) as (port, requests):
            head = (f"Authorization: Bearer {plant()}", f"Mcp-Session-Id: s-{number}", f"Cookie: s={plant()}")
            assert send_raw("127.0.0.1", interlock.port, [request(port, body, "POST", *head)])
            if not requests:  # refused: the server is still waiting for somebody
                send_raw("127.0.0.1", port, [request(port, b"{}")])


def sqlite_texts(path: Path) -> bytes:
    """Return every value of every table of a database, in case a text is cut in its pages."""
    connection = apsw.Connection(str(path))
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows = [row for name in names for row in connection.execute(f'SELECT * FROM "{name}"')]
    connection.close()
    return repr(rows).encode()


def postgres_texts(postgres: Postgres, url: str) -> bytes:
    """Return every row of every table."""
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    names = postgres.psql(tables, url).splitlines()
    assert "proposals" in names
    return "\n".join(postgres.psql(f'COPY "{name}" TO STDOUT', url) for name in names).encode()


def kept(state_dir: Path) -> dict[str, bytes]:
    """Return every file that a proxy left, and what its databases hold."""
    files = [path for path in state_dir.rglob("*") if path.is_file()]
    found = {str(path): path.read_bytes() for path in files}
    return found | {f"tables of {path}": sqlite_texts(path) for path in files if path.suffix == ".db"}


@pytest.mark.parametrize("kind", ["embedded", "postgres"])
@pytest.mark.parametrize("policy", POLICIES)
def test_no_secret_is_kept(
    tmp_path: Path, policy: str, kind: str, postgres: Postgres, request: pytest.FixtureRequest
) -> None:
    planter, numbers = Planter(), iter(range(1000))
    url = request.getfixturevalue("database_url") if kind == "postgres" else None
    flags = ["--database-url", url] if url else []
    with start_interlock(tmp_path, policy=POLICIES[policy], flags=flags) as interlock:
        fire(interlock, lambda: planter.key() if next(numbers) % 2 else planter.token())
        events = interlock.events()
        found = {f"{name}, running": data for name, data in kept(interlock.state_dir).items()}
    found |= kept(interlock.state_dir) | {"stderr": interlock.errors().encode()}
    if url:
        found["Postgres"] = postgres_texts(postgres, url)
    leaks = {
        (where, secret) for encoded, secret in planter.spellings().items() for where in found if encoded in found[where]
    }
    assert leaks == set()
    assert json.dumps(events).count("[secret:") >= 8  # they were there to be kept
