"""A FastMCP proxy that denies tools by name: `python fastmcp_proxy.py PORT UPSTREAM_URL`, in FastMCP's own venv."""

import sys

from fastmcp.exceptions import ToolError
from fastmcp.server import create_proxy
from fastmcp.server.middleware import Middleware

DENIED = {"shell", "delete_file", "transfer_funds"}


class Deny(Middleware):
    """Refuses what is on the list."""

    async def on_call_tool(self, context, call_next):
        if context.message.name in DENIED:
            raise ToolError(f"{context.message.name} is denied")
        return await call_next(context)


def main() -> None:
    proxy = create_proxy(sys.argv[2], name="bench")
    proxy.add_middleware(Deny())
    proxy.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), log_level="error", show_banner=False)


if __name__ == "__main__":
    main()
