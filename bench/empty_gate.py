"""The daemon with a gate that lets everything pass: what the embedding costs by itself.

`python bench/empty_gate.py up …` takes what `interlock up` takes. Bodies are neither read, decided on nor
recorded; all else is as it is. For measuring only: nothing in the product can start it this way.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from proxy import cli
from proxy.core.model import Pass, Verdict
from proxy.gate.gate import Gate
from proxy.runtime import wiring


class EmptyGate(Gate):
    """Lets everything pass."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.requests.inspect = self._inspect  # type: ignore[method-assign]

    async def _inspect(self, *_: Any, **__: Any) -> Verdict:
        return Pass()


if __name__ == "__main__":
    wiring.Gate = EmptyGate  # type: ignore[misc]
    cli.main()
