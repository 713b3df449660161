"""Ids: unique, and in the order in which they were made."""

from __future__ import annotations

import uuid

from proxy.core.ids import new_id


def test_ids_are_uuids_of_version_7_that_sort_by_the_time_they_were_made() -> None:
    made = [new_id() for _ in range(1000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {uuid.UUID(each).version for each in made} == {7}
