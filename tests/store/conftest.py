"""The fixtures of both stores, SQLite and Postgres."""

from tests.support.store_fixtures import events, store, where

__all__ = ["events", "store", "where"]
