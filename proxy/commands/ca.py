"""`interlock ca`: the CA certificate that agents must trust."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from proxy.commands.options import state_folder, takes
from proxy.errors import ConfigError
from proxy.identity.ca import Authority, fingerprint

app = typer.Typer(help="Show and export the CA certificate that agents must trust.", no_args_is_help=True)


@app.command(epilog="Example:  interlock ca show")
@takes(state_folder)
def show(folder: Path) -> None:
    """Print the certificate's file, fingerprint and validity; create the CA if there is none."""
    authority = Authority(folder)
    certificate = authority.ensure()
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    console.print(f"certificate  {authority.certificate_file}")
    console.print(f"with roots   {authority.bundle_file}")
    console.print(f"sha-256      {fingerprint(certificate)}")
    console.print(f"valid until  {certificate.not_valid_after_utc:%Y-%m-%d}")


@app.command(epilog="Example:  interlock ca export ca.pem")
@takes(state_folder)
def export(
    folder: Path,
    file: Annotated[Path | None, typer.Argument(help="File to write; default: stdout.")] = None,
    bundle: Annotated[bool, typer.Option("--bundle", help="Include the system's CA certificates.")] = False,  # noqa: FBT002
) -> None:
    """Write the certificate, never the key, as PEM."""
    authority = Authority(folder)
    # Also without a proxy: agents can be set up before the first start.
    authority.ensure()
    pem = (authority.bundle_file if bundle else authority.certificate_file).read_text()
    if file is None:
        typer.echo(pem, nl=False)
        return
    try:
        file.write_text(pem)
    except OSError as error:
        raise ConfigError(f"cannot write {str(file)!r}: {error.strerror}; choose another file") from error
