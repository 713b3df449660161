from __future__ import annotations

import json

from tests.support.harness import interlock_cli


def test_the_setting_is_off_here() -> None:
    shown = [json.loads(line) for line in interlock_cli("config", "show", "--json").stdout.splitlines()]
    assert {"setting": "fast", "value": False, "source": "INTERLOCK_FAST"} in shown
