"""The file of targets, and their secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.notify.targets import Target, load_targets, read_secrets

GOOD = """\
ops: {kind: slack, url_file: url}
pager: {kind: webhook, url: "https://pager.example.com/hook?x=1", secret_env: PAGER}
phone: {kind: ntfy, url: "https://ntfy.example.com", topic: ops}
mail: {kind: email, smtp: "mail.example.com:587", to: [ops@example.com]}
"""


def loaded(tmp_path: Path, text: str) -> dict[str, Target]:
    (tmp_path / "notify.yaml").write_text(text)
    return load_targets(tmp_path / "notify.yaml")


def test_targets_are_read_by_name(tmp_path: Path) -> None:
    assert [target.kind for target in loaded(tmp_path, GOOD).values()] == ["slack", "webhook", "ntfy", "email"]
    assert load_targets(None) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "1 to 16 targets"),
        ("[]", "1 to 16 targets"),
        ("a: {kind: pigeon, url: 'https://x.example'}", "kind"),
        ("a: {kind: slack}", "one of url: and url_file:"),
        ("a: {kind: slack, url: 'https://x.example', url_file: y}", "one of url: and url_file:"),
        ("a: {kind: slack, url: 'http://x.example/SECRET'}", "https:// URL"),
        ("a: {kind: slack, url: 'https://u:SECRET@x.example'}", "https:// URL"),
        ("a: {kind: slack, url: 'file:///SECRET'}", "https:// URL"),
        ("a: {kind: ntfy, url: 'https://x.example'}", "topic"),
        ("a: {kind: email, smtp: 'x:25'}", "to: [address]"),
        ("a: {kind: email, smtp: 'mail.example.com:25', to: [a@b], tls: off}", "on this machine"),
        ("a: {kind: webhook, url: 'https://x.example', secret: SECRET}", "secret"),
        ("'a b': {kind: slack, url: 'https://x.example'}", "letters, digits"),
        ("a: {kind: slack, url: x}\na: {kind: slack, url: x}", "cannot be read"),
        ("a: 7", "a:"),
    ],
)
def test_a_wrong_file_is_refused_and_repeats_no_secret(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    assert words in str(refused.value) or "target a" in str(refused.value)
    assert "SECRET" not in str(refused.value).replace("secret", "")


def test_secrets_come_from_files_and_the_environment(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://hooks.example.com/T0/B0\n")
    slack = Target(kind="slack", url_file=tmp_path / "url", secret_file=tmp_path / "url")
    found = read_secrets("ops", slack, {})
    assert (found.url, found.secret) == ("https://hooks.example.com/T0/B0", b"https://hooks.example.com/T0/B0")
    assert "T0" not in repr(found)
    hook = Target(kind="webhook", url="https://x.example", secret_env="PAGER")
    assert read_secrets("pager", hook, {"PAGER": "s"}).secret == b"s"
    with pytest.raises(ConfigError, match="PAGER is not set"):
        read_secrets("pager", hook, {})


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"http://evil.example/TOKEN"])
def test_a_secret_file_that_cannot_be_used_is_told_of_without_its_content(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "url").write_bytes(content)
    with pytest.raises(ConfigError, match="notify target ops") as refused:
        read_secrets("ops", Target(kind="slack", url_file=tmp_path / "url"), {})
    assert "TOKEN" not in str(refused.value)
