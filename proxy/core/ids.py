"""Ids of events and calls."""

from __future__ import annotations

import uuid_utils


def new_id() -> str:
    """Return a time-ordered unique id."""
    return str(uuid_utils.uuid7())
