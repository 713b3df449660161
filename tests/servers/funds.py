"""A bank on the Python SDK, over streamable HTTP, HTTP+SSE or stdio: its execution log is the ledger."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult, ToolAnnotations

from tests.servers.common import ExecutionLog, parse_options, serve

CONFIRM = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


def make_bank(log: ExecutionLog) -> MCPServer:
    bank = MCPServer("bank", log_level="WARNING")

    @bank.tool(annotations=ToolAnnotations(read_only_hint=True))
    def balance(account: str) -> str:
        """Tell what is on an account."""
        log.executed("balance", {"account": account})
        return f"{account} has 100"

    @bank.tool(annotations=ToolAnnotations(title="Transfer", destructive_hint=True))
    def transfer_funds(amount: float, to: str) -> dict[str, float]:
        """Move money to somebody."""
        log.executed("transfer_funds", {"amount": amount, "to": to})
        return {"moved": amount}

    @bank.tool()
    def failing_transfer(amount: float) -> str:
        """Fail after the money is gone."""
        log.executed("failing_transfer", {"amount": amount})
        raise ValueError("the bank is closed")

    @bank.tool()
    def dying_transfer(amount: float) -> str:
        """Die after the money is gone."""
        log.executed("dying_transfer", {"amount": amount})
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    @bank.tool()
    def confirmed_transfer(amount: float, ctx: Context) -> str | InputRequiredResult:
        """Ask for a code first."""
        answers = ctx.input_responses
        if not answers:
            log.executed("confirmed_transfer.asked", {"amount": amount})
            ask = ElicitRequest(params=ElicitRequestFormParams(message="The code?", requested_schema=CONFIRM))
            return InputRequiredResult(input_requests={"code": ask}, request_state="asked")
        answer = answers["code"]
        assert isinstance(answer, ElicitResult)
        log.executed("confirmed_transfer", {"amount": amount, "code": answer.content})
        return f"moved {amount}"

    return bank


def main() -> None:
    if "--stdio" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--stdio", action="store_true")
        parser.add_argument("--log", type=Path, required=True)
        make_bank(ExecutionLog(parser.parse_args().log)).run("stdio")
        return
    over_sse = "--sse" in sys.argv
    options = parse_options([flag for flag in sys.argv[1:] if flag != "--sse"])
    bank = make_bank(ExecutionLog(options.log))
    serve(bank.sse_app() if over_sse else bank.streamable_http_app(json_response=options.json), options)


if __name__ == "__main__":
    main()
