"""The Python SDK's legacy HTTP+SSE server (2024-11-05): GET /sse, POST /messages/."""

from __future__ import annotations

from sse_starlette import EventSourceResponse

from tests.servers.common import ExecutionLog, make_server, parse_options, serve


def main() -> None:
    options = parse_options()
    if options.ping is not None:
        EventSourceResponse.DEFAULT_PING_INTERVAL = options.ping  # type: ignore[assignment]
    serve(make_server(ExecutionLog(options.log)).sse_app(), options)


if __name__ == "__main__":
    main()
