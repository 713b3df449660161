"""The list of replacements for speed: each is used, and each module says what it gains and until when it is needed."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import pytest

from addons.mitm import fast
from addons.mitm.fast.replacements import FAST
from addons.mitm.patches import Replacements

PARTS = {"replacements", "socket_protocol"}  # the list itself, and a part of connection_handler
MODULES = sorted({module.name for module in pkgutil.iter_modules(fast.__path__)} - PARTS)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Replacements)])
def test_each_is_another_one_than_without_the_switch(name: str) -> None:
    assert getattr(FAST, name) != getattr(Replacements(), name)


@pytest.mark.parametrize("name", MODULES)
def test_each_module_says_what_it_gains_and_what_would_make_it_unnecessary(name: str) -> None:
    text = importlib.import_module(f"addons.mitm.fast.{name}").__doc__ or ""
    assert "Gain: " in text
    assert " %" in text.partition("Gain: ")[2]
    assert "Unnecessary once " in text
