"""`interlock injector`: serves over TLS, tells mistakes, and takes a changed template up."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest
import trustme

from proxy.commands.injector import _Current
from tests.commands.conftest import Run, complaint
from tests.kubernetes.test_admission import review
from tests.support.processes import start_module

TEMPLATE = "initContainers: [{name: interlock, image: '%s'}]\n"
POD = {"spec": {"containers": [{"name": "agent", "image": "python:3"}]}}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    template = tmp_path / "injection.yaml"
    template.write_text(TEMPLATE % "interlock:1")
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "tls.key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    return {"--template": str(template), "--certificate": str(tmp_path / "tls.crt"), "--key": str(tmp_path / "tls.key")}


def words(files: dict[str, str], **changed: str) -> list[str]:
    every = files | {f"--{name}": value for name, value in changed.items()}
    return ["injector", *(word for pair in every.items() for word in pair)]


def test_it_serves_until_it_is_told_to_stop(files: dict[str, str], tmp_path: Path) -> None:
    process = start_module(
        "proxy.cli", *words(files, listen="127.0.0.1:0"), "--json", stdout=subprocess.PIPE, env={"PATH": "/usr/bin"}
    )
    assert process.stdout is not None
    try:
        where = json.loads(process.stdout.readline())["listen"]
        trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        with httpx2.Client(base_url=f"https://{where}", verify=trust, trust_env=False) as client:
            answer = client.post("/mutate", json=review(POD))
        assert answer.json()["response"]["allowed"] is True
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"certificate": "/nowhere.pem"}, "/nowhere.pem is no file"),
        ({"listen": "here"}, "--listen here: write HOST:PORT"),
        ({"listen": "127.0.0.1:70000"}, "write HOST:PORT"),
        ({"listen": "192.0.2.1:1"}, "192.0.2.1:1"),
        ({"template": "/nowhere.yaml"}, "/nowhere.yaml"),
    ],
)
def test_a_mistake_is_one_message(run: Run, files: dict[str, str], changed: dict[str, str], said: str) -> None:
    assert said in complaint(run(*words(files, **changed)))


def test_a_changed_template_is_taken_up_and_a_bad_one_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "injection.yaml"
    file.write_text(TEMPLATE % "interlock:1")
    current = _Current(file)
    replacement = tmp_path / "new"
    for text in (TEMPLATE % "interlock:2", "initContainers: []"):
        replacement.write_text(text)
        replacement.replace(file)
        assert current().init_containers[0]["image"] == "interlock:2"
    assert "stays in force" in capsys.readouterr().err
    file.unlink()
    assert current().init_containers[0]["image"] == "interlock:2"
