"""Writes proxy/redact/detectors.json from detectors.yaml: `python scripts/detector_data.py`, after each change of it.

`--check` writes nothing, and fails where the file is not what the YAML says.
"""

from __future__ import annotations

import sys
from pathlib import Path

from proxy.redact.detector_catalog import encode_catalog

FOLDER = Path(__file__).resolve().parent.parent / "proxy" / "redact"


def main(arguments: list[str]) -> int:
    """Write the file, or say that it should be."""
    file = FOLDER / "detectors.json"
    text = encode_catalog((FOLDER / "detectors.yaml").read_bytes())
    if "--check" not in arguments:
        file.write_text(text)
    elif not file.exists() or file.read_text() != text:
        print(f"{file} is not what detectors.yaml says: run python scripts/detector_data.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
