"""How commands reach the desk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.admin_api.client import RemoteReview
from proxy.admin_api.server import AdminApiServer
from proxy.audit.local_log import LOG_FILE
from proxy.commands.review import OwnReview, find_token, open_review
from proxy.config import Settings
from proxy.errors import AuditUnavailableError, ConfigError, ReviewError
from proxy.identity.token_file import AgentTokens, OperatorTokens
from proxy.system import run_file
from tests.support.proposal_fixture import ReviewFixture, new_proposal


def running(operator_socket: Path) -> run_file.RunningProxy:
    """Return the note of a proxy that runs: of this process, because that does."""
    return run_file.RunningProxy(
        os.getpid(), "127.0.0.1:1", "regular", "", "", "", 0.0, operator_socket=str(operator_socket)
    )


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_OPERATOR_TOKEN", raising=False)


def test_a_token_comes_from_the_file_named_else_the_environment_else_the_first_operators_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"operator\.token does not exist; give --token-file"):
        find_token(tmp_path, None)
    tokens = OperatorTokens(tmp_path)
    tokens.ensure()
    assert tokens.holder(find_token(tmp_path, None)) == "operator"
    monkeypatch.setenv("INTERLOCK_OPERATOR_TOKEN", "ilo_environment\n")
    assert find_token(tmp_path, None) == "ilo_environment"
    (tmp_path / "mine").write_text("ilo_file\n")
    assert find_token(tmp_path, tmp_path / "mine") == "ilo_file"
    with pytest.raises(ConfigError, match=r"cannot read the token file .*gone"):
        find_token(tmp_path, tmp_path / "gone")


async def test_where_a_proxy_runs_its_socket_is_used(tmp_path: Path) -> None:
    world = ReviewFixture()
    world.lay(new_proposal())
    tokens = OperatorTokens(tmp_path)
    admin_api = AdminApiServer(world.review, tokens, world, tmp_path)
    admin_api.start()
    token = tokens.add("alice")
    run_file.write(tmp_path, running(admin_api.path))
    async with open_review(Settings(state_dir=tmp_path), token) as review:
        assert isinstance(review, RemoteReview)
        assert (await review.approve(new_proposal().proposal_id, ""))["operator"] == "alice"
    await admin_api.stop()
    assert not (tmp_path / "log").exists()


async def test_a_proxy_that_does_not_answer_is_told_and_not_gone_around(tmp_path: Path) -> None:
    token = OperatorTokens(tmp_path).add("alice")
    run_file.write(tmp_path, running(tmp_path / "gone.sock"))
    async with open_review(Settings(state_dir=tmp_path), token) as review:
        with pytest.raises(ReviewError, match="does not answer"):
            await review.list([], 1)


async def test_where_none_runs_the_store_is_opened_for_an_operator(tmp_path: Path) -> None:
    token = OperatorTokens(tmp_path).add("alice")
    async with open_review(Settings(state_dir=tmp_path), token) as review:
        assert isinstance(review, OwnReview)
        assert await review.list([], 1) == []
        with pytest.raises(ReviewError):
            await review.reject("nothing-like-it", "no")


async def test_where_none_runs_the_store_is_opened_for_nobody_else(tmp_path: Path) -> None:
    agent = AgentTokens(tmp_path).add("bot")
    revoked = OperatorTokens(tmp_path).add("alice")
    OperatorTokens(tmp_path).revoke("alice")
    for token in (agent, revoked, "", "ilo_"):
        with pytest.raises(ConfigError, match="not an operator's token of this state folder"):
            async with open_review(Settings(state_dir=tmp_path), token):
                pass
    assert not (tmp_path / "log").exists()


async def test_where_nothing_can_be_recorded_nothing_can_be_decided(tmp_path: Path) -> None:
    token = OperatorTokens(tmp_path).add("alice")
    (tmp_path / LOG_FILE).parent.mkdir()
    (tmp_path / LOG_FILE).write_bytes(b"garbage " * 500)
    with pytest.raises(AuditUnavailableError):
        async with open_review(Settings(state_dir=tmp_path), token):
            pass
