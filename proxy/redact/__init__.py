"""Find secrets and personal data in JSON values and text, and mask them.

Pure but for reading its own `detectors.yaml`. `Masker` masks a value, `StreamMasker` text that comes in chunks;
`builtin().extended(…)` adds a policy's own detectors to the built-in ones.
"""

from proxy.redact.detector_catalog import DetectorCatalog, builtin
from proxy.redact.detectors import Detector
from proxy.redact.mask import DECODING_LIMIT, NUMBER_LIMIT, Masker
from proxy.redact.stream import StreamMasker

__all__ = ["DECODING_LIMIT", "NUMBER_LIMIT", "Detector", "DetectorCatalog", "Masker", "StreamMasker", "builtin"]
