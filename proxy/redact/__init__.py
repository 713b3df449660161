"""Detectors and masking over JSON values and text.

Pure but for reading its own `detectors.yaml`. `Masker` is the way in; `StreamMasker` for text
in chunks; `builtin().extended(…)` for a policy's own detectors; `Suppressions` for what it lets be.
"""

from proxy.redact.detectors import Catalogue, Detector, builtin
from proxy.redact.mask import DECODING_LIMIT, NUMBER_LIMIT, Masker
from proxy.redact.stream import StreamMasker
from proxy.redact.suppress import Suppression, Suppressions

__all__ = [
    "DECODING_LIMIT",
    "NUMBER_LIMIT",
    "Catalogue",
    "Detector",
    "Masker",
    "StreamMasker",
    "Suppression",
    "Suppressions",
    "builtin",
]
