"""Answers are masked for every value given out, whole or cut in pieces."""

from __future__ import annotations

import gzip
import random

import pytest

from proxy.core.vault import Credential, Secret
from proxy.errors import WireError
from proxy.gate.reflections import AnswerMask, Reflections
from tests.servers.reflecting import FORMS
from tests.support.vault_fixture import FakeVault

VALUE = 'sk-live-Ab"c/d+1\\x7890&z<e>'
KEY = Credential(name="key", placeholder="ilkph_key_ABCDEFGHIJKLMNOPQRSTUVWXYZ")
OTHER = Credential(name="other", placeholder="ilkph_other_ABCDEFGHIJKLMNOPQRSTUVWXYZ")


@pytest.fixture
def vault() -> FakeVault:
    return FakeVault(known=((KEY, Secret(VALUE.encode())),))


def fed(mask: AnswerMask, pieces: list[bytes]) -> bytes:
    return b"".join(map(mask.feed, pieces)) + mask.close()


@pytest.mark.parametrize("form", FORMS)
def test_cut_anywhere_the_answer_is_the_same(vault: FakeVault, form: str) -> None:
    data = b"before " + FORMS[form](VALUE) + b" after " + FORMS[form](VALUE) + b"\n"
    reflections = Reflections(vault)
    whole = fed(AnswerMask(reflections), [data])
    zeros = b"\0" * (1 if form == "utf-16" else 3 if form == "utf-32-be" else 0)
    assert whole.count(zeros.join(bytes((byte,)) for byte in KEY.placeholder.encode())) == 2
    chance = random.Random(1)
    for _ in range(50):
        cuts = sorted(chance.sample(range(len(data)), 4))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        # The semicolon of an entity may be cut off from the value that it ends.
        assert fed(AnswerMask(reflections), pieces).replace(b";", b"") == whole.replace(b";", b"")
    bytewise = fed(AnswerMask(reflections), [data[i : i + 1] for i in range(len(data))])
    assert bytewise.replace(b";", b"") == whole.replace(b";", b"")


def test_only_what_may_be_a_beginning_is_held_back(vault: FakeVault) -> None:
    mask = AnswerMask(Reflections(vault))
    assert mask.feed(b"data: {}\n\n") == b"data: {}\n\n"
    assert mask.feed(b"data: sk-live") == b"data: "
    assert mask.feed(b"ly there\n\n") == b"sk-lively there\n\n"
    assert (mask.has_changed, mask.close()) == (False, b"")


def test_codings_are_undone_and_unknown_ones_refused(vault: FakeVault) -> None:
    coded = gzip.compress(VALUE.encode())
    mask = AnswerMask(Reflections(vault), ["gzip"])
    assert fed(mask, [coded[i : i + 5] for i in range(0, len(coded), 5)]) == KEY.placeholder.encode()
    assert mask.has_changed
    with pytest.raises(WireError, match="rot13"):
        AnswerMask(Reflections(vault), ["rot13"])


def test_a_value_that_is_given_out_while_an_answer_streams_counts(vault: FakeVault) -> None:
    vault.known = ()
    mask = AnswerMask(Reflections(vault))
    assert mask.current() is None
    assert mask.feed(b"one " + VALUE.encode()) == b"one " + VALUE.encode()
    vault.known = ((KEY, Secret(VALUE.encode())),)
    assert mask.feed(b" two " + VALUE.encode() + b" ") == b" two " + KEY.placeholder.encode() + b" "


def test_of_two_values_the_longer_is_found_first_and_each_has_its_placeholder(vault: FakeVault) -> None:
    vault.known = (
        (KEY, Secret(b"abcdefgh")),
        (OTHER, Secret(b"abcdefgh-and-more")),
        (OTHER, Secret(b"abcdefgh")),
    )
    mask = Reflections(vault).current()
    assert mask is not None
    assert mask.apply(b"abcdefgh-and-more abcdefgh").decode() == f"{OTHER.placeholder} {KEY.placeholder}"
    data = b"nothing of it"
    assert mask.apply(data) is data


def test_the_mask_is_made_once_for_the_same_values(vault: FakeVault) -> None:
    reflections = Reflections(vault)
    assert reflections.is_on
    assert reflections.current() is reflections.current()
    assert not Reflections(None).is_on
    assert Reflections(None).current() is None


def test_a_value_may_come_where_there_are_credentials_or_nobody_knows() -> None:
    assert not Reflections(None).may_come()
    assert not Reflections(FakeVault()).may_come()
    assert Reflections(FakeVault(held=(KEY,))).may_come()
    assert Reflections(FakeVault(damaged=True)).may_come()
