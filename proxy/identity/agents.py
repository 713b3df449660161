"""Agents and their tokens."""

from __future__ import annotations

from proxy.identity.token_file import TokenBook


class AgentBook(TokenBook):
    """The agents of one state folder: who may call."""

    role = "agent"
    prefix = "ilk_"
