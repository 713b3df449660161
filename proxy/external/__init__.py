"""Decisions of other services: OPA's and Cedar's HTTP, behind the Protocol that the gate knows."""
