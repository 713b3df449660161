"""Every kind of sink has settings and a module that opens it."""

from __future__ import annotations

from typing import get_args

from proxy.sinks.any_sink import AnySink
from proxy.sinks.open_sinks import KINDS


def test_every_kind_of_settings_can_be_opened() -> None:
    union, *_ = get_args(AnySink.__value__)
    kinds = {get_args(one.model_fields["kind"].annotation)[0] for one in get_args(union)}
    assert kinds == set(KINDS)
