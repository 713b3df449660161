"""`interlock ca`: the CA certificate that agents must trust."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.options import AsJson, state_folder, takes
from proxy.commands.terminal import print_json_lines, print_note, print_pairs, printable
from proxy.commands.time_format import format_time
from proxy.errors import ConfigError
from proxy.identity.ca import Authority, fingerprint

app = typer.Typer(help="Show and export the CA certificate that agents must trust.", no_args_is_help=True)


@app.command(epilog="Example:  interlock ca show")
@takes(state_folder)
def show(folder: Path, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Print the certificate's file, fingerprint and validity; create the CA if there is none."""
    authority = Authority(folder)
    certificate = authority.ensure()
    ends = certificate.not_valid_after_utc
    found = {
        "certificate": str(authority.certificate_file),
        "bundle": str(authority.bundle_file),
        "sha256": fingerprint(certificate),
        "valid_until": ends.timestamp(),
    }
    if as_json:
        print_json_lines([found])
        return
    print_pairs(
        (
            ("certificate", printable(found["certificate"])),
            ("with roots", printable(found["bundle"])),
            ("sha-256", fingerprint(certificate)),
            ("valid until", f"{format_time(ends.timestamp())} UTC"),
        )
    )


@app.command(epilog="Example:  interlock ca export ca.pem")
@takes(state_folder)
def export(
    folder: Path,
    file: Annotated[Path | None, typer.Argument(help="File to write; default: stdout.")] = None,
    bundle: Annotated[bool, typer.Option("--bundle", help="Include the system's CA certificates.")] = False,  # noqa: FBT002
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Write the certificate, never the key, as PEM."""
    authority = Authority(folder)
    # Also without a proxy: agents can be set up before the first start.
    authority.ensure()
    pem = (authority.bundle_file if bundle else authority.certificate_file).read_text()
    if file is not None:
        try:
            file.write_text(pem)
        except OSError as error:
            raise ConfigError(f"cannot write {str(file)!r}: {error.strerror}; choose another file") from error
    if as_json:
        print_json_lines([{"pem": pem, "file": str(file) if file else None}])
    elif file is None:
        typer.echo(pem, nl=False)
    else:
        print_note(f"Written: {printable(file)}")
