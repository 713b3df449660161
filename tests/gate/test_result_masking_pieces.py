"""A secret that comes in pieces over several messages is found once its last piece is there."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.gate.result_masking import KEPT, MAX_NAMES, mask_after, said_after
from proxy.redact import Masker

SECRET = "ghp_" + "Zx8Kq2" * 6
MASKER = Masker(b"k" * 32, engine="re2")


def progress(text: str) -> dict[str, Any]:
    params = {"progressToken": "p", "progress": 1, "message": text}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def log(text: Any) -> dict[str, Any]:
    params = {"level": "info", "logger": "x", "data": text}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": params}


def answer(*texts: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text} for text in texts]
    return {"jsonrpc": "2.0", "id": 1, "result": {"content": content, "isError": False}}


def run(*messages: Any) -> tuple[list[Any], list[str], bool]:
    """Mask one message after the other; return them, the places of what was found, and whether any had begun before."""
    before, given, places, ever = "", [], [], False
    for message in messages:
        masked, found, begun = mask_after(MASKER, before, message, ("secrets",))
        before, ever = said_after(before, masked), ever or begun
        given.append(masked)
        places += [finding.path for finding in found]
    return given, places, ever


@pytest.mark.parametrize("cut", [4, 12, 36])
@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (progress, progress, "params.message"),
        (log, log, "params.data"),
        (progress, log, "params.data"),
        (log, answer, "result.content[0].text"),
        (progress, answer, "result.content[0].text"),
        (lambda text: log({"line": text}), lambda text: log({"line": text}), "params.data.line"),
    ],
)
def test_a_secret_cut_over_two_messages_is_masked_in_the_second(first, second, place, cut):
    given, places, begun = run(first(f"so: {SECRET[:cut]}"), second(f"{SECRET[cut:]} that was it"))
    assert given[0] == first(f"so: {SECRET[:cut]}")
    assert SECRET[cut:] not in repr(given[1])
    assert "that was it" in repr(given[1])
    assert (places, begun) == ([place], True)


def test_a_secret_in_three_pieces_is_found_with_the_last():
    given, _, begun = run(progress(SECRET[:10]), progress(SECRET[10:20]), answer("no: ", SECRET[20:]))
    assert given[2] == answer("no: ", SECRET[20:]), "another text came between"
    assert not begun
    given, places, begun = run(progress(SECRET[:10]), progress(SECRET[10:20]), answer(SECRET[20:], ": x"))
    assert SECRET[20:] not in repr(given[2])
    assert (places, begun) == (["result.content[0].text"], True)


def test_the_words_of_the_protocol_are_never_taken_for_the_rest_of_a_secret():
    given, places, _ = run(progress(SECRET[:39]), progress(" that was it"), log(["a", "b"]))
    assert given == [progress(SECRET[:39]), progress(" that was it"), log(["a", "b"])]
    assert places == []


def test_a_whole_secret_is_masked_once_and_is_not_said_to_have_begun_before():
    given, places, begun = run(log("quiet"), log(f"a {SECRET} b"), log("more"))
    assert SECRET not in repr(given)
    assert (places, begun) == (["params.data"], False)


def test_messages_without_secrets_are_given_as_they_are():
    messages = [progress("one"), log({"a": [1, "two"]}), answer("three")]
    given, places, _ = run(*messages)
    assert all(one is other for one, other in zip(given, messages, strict=True))
    assert places == []


def test_what_is_kept_is_bounded():
    assert len(said_after("x" * KEPT, "y" * 10 * KEPT)) == KEPT
    wide = {f"k{number}": "v" for number in range(10 * MAX_NAMES)}
    masked, found, begun = mask_after(MASKER, "before", wide, ("secrets",))
    assert (masked, found, begun) == (wide, (), False)


def test_a_message_of_any_depth_is_read():
    deep: Any = "end"
    for _ in range(100_000):
        deep = [deep]
    assert said_after("", deep) == "end"
