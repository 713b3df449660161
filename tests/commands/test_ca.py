"""`interlock ca`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from proxy.identity.ca import Authority, fingerprint
from tests.commands.conftest import Run, complaint


def test_the_ca_is_made_and_shown(run: Run, tmp_path: Path) -> None:
    state = tmp_path / "[red]state[/red]"
    done = run("ca", "show", "--state-dir", str(state))
    assert (done.returncode, done.stderr) == (0, "")
    certificate = Authority(state).ensure()
    shown = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert shown["certificate"] == str(state / "ca" / "ca.pem")
    assert shown["sha-256"] == fingerprint(certificate)
    assert shown["valid"].split() == ["until", *f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S}".split(), "UTC"]


def test_the_certificate_is_exported_and_never_the_key(run: Run, tmp_path: Path) -> None:
    printed = run("ca", "export").stdout
    certificate = Authority(tmp_path / "state").ensure()
    assert x509.load_pem_x509_certificate(printed.encode()) == certificate
    assert run("ca", "export", "out.pem").stdout == ""
    assert (tmp_path / "out.pem").read_text() == printed
    bundle = run("ca", "export", "--bundle").stdout
    assert bundle.endswith(printed)
    assert bundle.count("BEGIN CERTIFICATE") > 1
    assert "PRIVATE" not in printed + bundle


def test_a_file_that_cannot_be_written_is_told(run: Run) -> None:
    assert "cannot write 'no/where.pem'" in complaint(run("ca", "export", "no/where.pem"))


def test_a_state_folder_that_cannot_be_made_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = complaint(run("ca", "show", "--state-dir", str(tmp_path / "file")))
    assert str(tmp_path / "file") in message


def test_a_broken_ca_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state" / "ca").mkdir(parents=True)
    (tmp_path / "state" / "ca" / "mitmproxy-ca.pem").write_text("garbage")
    assert "restore it, or delete it" in complaint(run("ca", "show"))


def test_a_fingerprint_with_the_name_of_an_emoji_in_it_is_printed_as_it_is(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.commands.ca.fingerprint", lambda _: "CA:AB:9B:A:B:O:O2")
    assert "CA:AB:9B:A:B:O:O2" in run("ca", "show").stdout
