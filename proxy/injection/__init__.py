"""Text that speaks to a model: found in what servers, pages and other agents say. Pure, no I/O.

Recall and false alarms are measured in docs/incoming.md; a text without a finding is not thereby harmless.
"""

from proxy.injection.matcher import prepare
from proxy.injection.passages import CONFIDENCES, Confidence, Passage, find_passages
from proxy.injection.signals import SIGNALS

__all__ = ["CONFIDENCES", "SIGNALS", "Confidence", "Passage", "find_passages", "prepare"]
