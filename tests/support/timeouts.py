"""How long tests wait for what must come.

A machine with much else to do may take many times what an idle one takes, and a bug takes for ever: so whatever must
come is waited for by this much, and what must not take long is told by something else than a clock on the wall.
"""

from __future__ import annotations

PATIENCE = 60.0
"""Seconds: far more than anything takes here, and less than a test may take in all."""
