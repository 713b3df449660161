"""The note by which one worker follows the store for the others."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from proxy.runtime.lead_note import FRESH_SECONDS, LISTEN_SECONDS, LeadNote


def notes(folder: Path) -> tuple[LeadNote, LeadNote]:
    return LeadNote(folder, lambda: True), LeadNote(folder, lambda: False)


def test_others_know_up_to_where_the_lead_follows(tmp_path: Path) -> None:
    lead, other = notes(tmp_path)
    assert other.followed() is None
    lead.say(7)
    assert (other.followed(), other.is_followed()) == (7, True)
    lead.say(7)
    lead.say(8)
    assert other.followed() == 8
    assert lead.followed() is None, "nobody follows for the lead itself"


def test_a_lead_that_says_nothing_more_is_not_relied_on(tmp_path: Path) -> None:
    lead, other = notes(tmp_path)
    lead.say(7)
    for age in (FRESH_SECONDS + 1, -FRESH_SECONDS - 1):  # it hangs, or the clock was put back
        os.utime(tmp_path / "lead-follows", (time.time() - age,) * 2)
        assert other.followed() is None
    (tmp_path / "lead-follows").write_text("odd")
    assert other.followed() is None


def test_only_the_lead_listens_while_it_follows(tmp_path: Path) -> None:
    lead, other = notes(tmp_path)
    assert lead.has_to_listen()
    assert not other.has_to_listen(), "at the start it is left to the lead"
    other._began -= LISTEN_SECONDS + 1
    assert other.has_to_listen()
    lead.say(0)
    assert not other.has_to_listen()


async def test_only_a_lead_that_follows_says_so(tmp_path: Path) -> None:
    lead, other = notes(tmp_path)
    for note, follows in ((lead, None), (other, 5)):
        telling = asyncio.create_task(note.tell_forever(lambda follows=follows: follows))  # type: ignore[misc]
        await asyncio.sleep(0)
        telling.cancel()
        assert other.followed() is None
    telling = asyncio.create_task(lead.tell_forever(lambda: 5))
    await asyncio.sleep(0)
    telling.cancel()
    assert other.followed() == 5


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    note = LeadNote(tmp_path / "gone", lambda: True)
    note.say(1)
    assert not note.is_fresh()
