"""Find secrets and personal data in JSON values and text, and mask them.

Pure but for reading its own `detectors.yaml`. `Masker` masks a value; `builtin().extended(…)` adds a policy's own
detectors to the built-in ones.
"""

from proxy.redact.detector_catalog import DetectorCatalog, builtin
from proxy.redact.detectors import Detector
from proxy.redact.mask import DECODING_LIMIT, MATCH_LIMIT, NUMBER_LIMIT, Masker

__all__ = ["DECODING_LIMIT", "MATCH_LIMIT", "NUMBER_LIMIT", "Detector", "DetectorCatalog", "Masker", "builtin"]
