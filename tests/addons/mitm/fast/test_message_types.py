"""Messages are made without a check of their fields' types, and mitmproxy has no other."""

from __future__ import annotations

import dataclasses

import pytest
from mitmproxy import http

from addons.mitm.fast import message_types

FIELDS = len(dataclasses.fields(http.RequestData))


def test_fields_are_not_checked_once_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http.MessageData, "__post_init__", http.MessageData.__post_init__)
    with pytest.raises(TypeError):
        http.RequestData(*["of no type"] * FIELDS)  # type: ignore[arg-type]
    message_types.install()
    assert http.RequestData(*["of no type"] * FIELDS).headers == "of no type"  # type: ignore[arg-type,comparison-overlap]
