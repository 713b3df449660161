"""Detectors and masking over JSON values and text.

Pure but for reading its own `detectors.yaml`. `Masker` is the way in; `StreamMasker` for text
in chunks; `builtin().extended(…)` for a policy's own detectors, `Book` to check them.
"""

from proxy.redact.detector_catalog import Book
from proxy.redact.detectors import Detector, DetectorCatalog, builtin
from proxy.redact.mask import DECODING_LIMIT, NUMBER_LIMIT, Masker
from proxy.redact.stream import StreamMasker

__all__ = [
    "DECODING_LIMIT",
    "NUMBER_LIMIT",
    "Book",
    "Detector",
    "DetectorCatalog",
    "Masker",
    "StreamMasker",
    "builtin",
]
