"""Interlock: a transparent HTTP/MCP interception proxy."""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from proxy.system.package_data import version  # noqa: PLC0415  found out when it is asked for

        return version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
