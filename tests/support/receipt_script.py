"""scripts/verify_receipt.py as a module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "verify_receipt.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("verify_receipt", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


verify_receipt = _load()
