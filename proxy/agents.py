"""Agents and their tokens."""

from __future__ import annotations

from proxy.token_book import TokenBook


class AgentBook(TokenBook):
    """The agents of one state folder: who may call."""

    role = "agent"
    prefix = "ilk_"
