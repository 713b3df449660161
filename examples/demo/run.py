"""The tour: a call allowed, one denied, one redacted, one in two steps, and a local server under strace.

    make demo    # ends with a link to the console
    make tour    # the same, and the console stays open, with an agent at work behind it

Everything is real (server and client of the MCP SDK, TLS, `interlock up`, strace) and lives in a temporary folder.
Exits with 1 if a step did not go as described.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from screen import Screen
from world import REPOSITORY, World, environment, made_up_token, running

DRAFTS = ["Pay alice 250 for the March invoice.", "Pay alice 250 for the March invoice."]
PLAN = {"path": "notes/plan.txt"}
LARGE = {"amount": 5000, "to": "mallory"}
WORK = (("read_file", PLAN), ("read_file", {"path": "notes/deploy.env"}), ("read_file", {"path": "/etc/shadow"}))
PAUSE = 2.0
NEXT = {
    "make tour": "this tour again; the console stays open",
    "make run": "the proxy, with the default policy",
    "docs/quick-start.md": "send your own calls through it, and write a rule",
    "examples/demo/policy.yaml": "the rules of this tour",
}
FORBIDDEN = ({"path": "/etc/passwd"}, {"path": "notes/..%2f..%2f..%2fetc/passwd"})


class Tour:
    """An agent's session, step by step."""

    def __init__(self, world: World, screen: Screen, client: Client) -> None:
        self._world, self._screen, self._client = world, screen, client

    async def allowed(self) -> None:
        """Show a call that no rule denies."""
        self._screen.step("Allowed", "no rule denies it, so it is forwarded")
        result = await self._call("read_file", PLAN)
        self._screen.says("server", text(result).strip(), "green")
        expect(not result.is_error, "the call was refused")

    async def denied(self) -> None:
        """Show a call that is refused, and the same path in an encoded form."""
        self._screen.step("Denied", "rule no-system-files: read_file, where path is under /etc")
        before = self._world.executions("read_file")
        for arguments in FORBIDDEN:
            result = await self._call("read_file", arguments)
            expect(reason(result) == "policy_denied", f"expected a denial, not {text(result)}")
        self._screen.says("interlock", text(result), "red")
        expect(self._world.executions("read_file") == before, "the server ran a denied call")
        self._screen.remark(
            "The server never got the call. The answer is an ordinary tool result that the model can read."
        )

    async def redacted(self) -> None:
        """Show a secret masked in a result."""
        self._screen.step("Redacted", "rule no-secrets: the server's result contains a token")
        result = await self._call("read_file", {"path": "notes/deploy.env"})
        self._screen.says("interlock", text(result).strip(), "yellow")
        expect(made_up_token() not in text(result), "the token came through")

    async def in_two_steps(self) -> None:
        """Show a proposal, its commit, and the refusal when the token is used again."""
        self._screen.step("Two-phase", "rule money-in-two-steps: propose and score first, then commit once")
        tools = [tool.name for tool in (await self._client.list_tools()).tools]
        self._screen.says("agent", f"tools/list → {', '.join(tools)}")
        given = {"amount": 250, "to": "alice"}
        proposal = await self._call("transfer_funds_propose", given, _interlock={"candidate_outputs": DRAFTS})
        answer: dict[str, Any] = proposal.structured_content or {}
        expect(answer.get("status") == "allowed", f"the proposal was not allowed: {text(proposal)}")
        self._screen.says(
            "interlock", f"allowed, score {answer['composite_score']:g}: a token for this one call", "yellow"
        )
        token = {"proposal_id": answer["proposal_id"], "commit_token": answer["commit_token"]}
        committed = await self._call("transfer_funds_commit", given, **token)
        self._screen.says("server", text(committed), "green")
        again = await self._call("transfer_funds_commit", given, **token)
        self._screen.says("interlock", f"refused: {reason(again)}", "red")
        expect(reason(again) == "nonce_replay", f"expected nonce_replay, not {text(again)}")
        expect(self._world.executions("transfer_funds") == 1, "the money did not move exactly once")
        self._screen.remark("The money moved once.")

    async def _call(self, tool: str, arguments: dict[str, Any], **extra: Any) -> Any:
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        self._screen.says("agent", f"{tool}({shown}{''.join(f', {name}=…' for name in extra)})")
        return await self._client.call_tool(tool, arguments | extra)


async def watch_stdio(world: World, screen: Screen) -> None:
    """Show a local server that does more than it declares."""
    screen.step("Watched", "interlock run -- python formatter.py: a local server over stdio, under strace")
    command = world.stdio_command()
    here = environment() | {"HOME": str(world.home)}
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=here, cwd=REPOSITORY)
    complaints = world.folder / "formatter.stderr"
    with complaints.open("w+") as errors:
        async with Client(stdio_client(parameters, errors), read_timeout_seconds=30) as client:
            screen.says("agent", "format_note(title='Plan')")
            result = await client.call_tool("format_note", {"title": "Plan"})
            screen.says("server", text(result), "green")
    events = map(json.loads, world.interlock("audit", "tail", "--json").splitlines())
    seen = [event["detail"] for event in events if event["kind"] == "observed" and event["detail"]["phase"] == "call"]
    if not seen:
        screen.remark(f"Not watched here: {complaints.read_text().strip()}")
        return
    for each in seen[0]["observations"]:
        where = str(each.get("path", "")).replace(str(world.home), "~")
        screen.says("interlock", f"observed {each['capability']}  {where}", "yellow")
    expect(".ssh/id_ed25519" in json.dumps(seen), "the key was read, and nobody saw it")
    screen.remark("Its description says that it formats a title. It also read a private key.")


def show_console(world: World, screen: Screen, *, stays: bool) -> None:
    """Show the way to the console: every call of this tour, and the proposals that wait for a person."""
    screen.step("Looked at", "every call as it happens, why it was decided so, and what waits for a person")
    screen.command("interlock console --print", world.interlock("console", "--print"))
    if stays:
        screen.remark("Open it: one transfer waits for you under Approvals. Ctrl-C ends the tour.")
    else:
        screen.remark("The link works once, and ends with this demo. `make tour` leaves it open.")


async def stay(world: World) -> None:
    """Be an agent at work: it reads, it is refused, and it asks again for what a person has to approve."""
    async with Client(streamable_http_client(world.server_url), read_timeout_seconds=30) as client:
        while True:
            for tool, arguments in WORK:
                await client.call_tool(tool, arguments)
                await asyncio.sleep(PAUSE)
            asked = LARGE | {"_interlock": {"candidate_outputs": DRAFTS}}
            answer: dict[str, Any] = (await client.call_tool("transfer_funds_propose", asked)).structured_content or {}
            if answer.get("status") == "allowed":
                token = {name: answer[name] for name in ("proposal_id", "commit_token")}
                await client.call_tool("transfer_funds_commit", LARGE | token)


def show_records(world: World, screen: Screen) -> None:
    """Show the recorded calls, and that the trail verifies; the proxy has ended by now."""
    screen.step("Recorded", "every call, before it was forwarded, in a signed chain that reveals changes")
    screen.command("interlock audit query", world.interlock("audit", "query"))
    screen.command("interlock audit verify", world.interlock("audit", "verify"))


def text(result: Any) -> str:
    """Return the text of a result."""
    return "\n".join(part.text for part in result.content if part.type == "text")


def reason(result: Any) -> str | None:
    """Return why Interlock refused a call; None if it did not."""
    return (result.meta or {}).get("mcp-interlock/denial", {}).get("reason")


def expect(held: bool, otherwise: str) -> None:  # noqa: FBT001  a statement, like assert
    """End the tour if a step did not go as described."""
    if not held:
        raise SystemExit(f"the demo went wrong: {otherwise}")


async def follow(world: World, screen: Screen) -> None:
    """Be the agent: its environment names the proxy; nothing else is configured."""
    os.environ |= {"HTTPS_PROXY": f"http://{world.proxy}", "SSL_CERT_FILE": str(world.bundle), "NO_PROXY": ""}
    async with Client(streamable_http_client(world.server_url), read_timeout_seconds=30) as client:
        tour = Tour(world, screen, client)
        await tour.allowed()
        await tour.denied()
        await tour.redacted()
        await tour.in_two_steps()


def main() -> None:
    """Start everything, take the tour, and say where to go next."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", type=Path, help="draw the tour into this SVG file in place of showing it")
    parser.add_argument("--console", action="store_true", help="leave the console open until Ctrl-C")
    options = parser.parse_args()
    screen = Screen(options.picture)
    with tempfile.TemporaryDirectory(prefix="interlock-demo-") as folder:
        with running(Path(folder)) as world:
            screen.begin("Interlock is a proxy between an agent and its MCP servers. Neither needs a change.")
            screen.path(("agent", ""), ("interlock", world.proxy), ("server", world.server_url))
            asyncio.run(follow(world, screen))
            asyncio.run(watch_stdio(world, screen))
            if options.console:
                show_console(world, screen, stays=True)
                # Ctrl-C is how the tour ends.
                with contextlib.suppress(KeyboardInterrupt):
                    asyncio.run(stay(world))
                return
            show_console(world, screen, stays=False)
        show_records(world, screen)
    screen.next(NEXT)
    screen.finish()


if __name__ == "__main__":
    main()
