"""`interlock injector`: puts Interlock into the pods of Kubernetes namespaces, as an admission webhook."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.options import AsJson
from proxy.commands.terminal import print_json_lines, print_note
from proxy.config import split_address
from proxy.errors import ConfigError
from proxy.kubernetes.injection import Injection, load_injection
from proxy.system import log_setup
from proxy.system.listen_ports import format_address, unusable

EPILOG = """
Example:
  interlock injector --template injection.yaml --certificate tls.crt --key tls.key
"""
Template = Annotated[Path, typer.Option(help="YAML file with what is added to a pod; the Helm chart renders it.")]
Certificate = Annotated[Path, typer.Option(help="Certificate of the webhook's service, in PEM.")]
Key = Annotated[Path, typer.Option(help="Its private key, in PEM.")]
Listen = Annotated[str, typer.Option(help="HOST:PORT to serve on.")]


def injector(
    template: Template,
    certificate: Certificate,
    key: Key,
    listen: Listen = "0.0.0.0:8443",
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Put Interlock into the pods of Kubernetes namespaces, as a webhook.

    It serves the API server until SIGTERM or Ctrl-C.

    A pod that would not be held is refused with the reason. The template and the certificate
    are read again when they change; a template with an error leaves the last good one in force.
    """
    # uvicorn and starlette take a second to import; --help should not.
    from proxy.kubernetes.webhook import serve  # noqa: PLC0415

    current = _Current(template)
    for file in (certificate, key):
        if not file.is_file():
            raise ConfigError(f"{file} is no file; name the PEM files with --certificate and --key")
    with _listener(listen) as listener:
        log_setup.configure()
        where = format_address(listener.getsockname())
        if as_json:
            print_json_lines([{"listen": where, "template": str(template)}])
        else:
            print_note(f"The injector listens on {where}.")
        asyncio.run(serve(listener, certificate, key, current))


def _listener(listen: str) -> socket.socket:
    try:
        host, port = split_address(listen)
    except ValueError as error:
        raise ConfigError(f"--listen {listen}: {error}") from None
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise unusable("listen", host, port, error) from None


class _Current:
    """The template in force. A change with an error in it is told and left alone."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp = self._look()
        self._injection = load_injection(file)

    def __call__(self) -> Injection:
        if (now := self._look()) != self._stamp:
            self._stamp = now
            try:
                self._injection = load_injection(self._file)
            except (ConfigError, OSError) as error:
                print_note(f"The template of before stays in force: {error}")
        return self._injection

    def _look(self) -> tuple[int, int] | None:
        try:
            seen = self._file.stat()
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_ino
