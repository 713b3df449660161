"""How exported events are written; the command's tests have the rest."""

from __future__ import annotations

import pytest

from proxy.audit.export_form import COLUMNS, csv_cells, exported
from proxy.core.event import LogEntry


def test_a_whole_event_has_its_place_in_the_chain() -> None:
    assert exported(LogEntry("{}", "w", 3, "c")) == {"body": "{}", "writer": "w", "seq": 3, "chain": "c"}


@pytest.mark.parametrize(
    ("tool", "cell"), [("plain", "plain"), ("=1+1", "'=1+1"), ("@x", "'@x"), ("a\\u001b[2J", "a\\x1b[2J")]
)
def test_a_cell_is_no_formula_and_no_escape(tool: str, cell: str) -> None:
    cells = csv_cells(LogEntry(f'{{"time": 1, "kind": "decided", "tool": "{tool}"}}', "w", 1, "c"))
    assert cells[COLUMNS.index("tool")] == cell
