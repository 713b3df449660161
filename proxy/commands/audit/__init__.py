"""`interlock audit`: tail, query, show, stats, export, verify and prune."""

from proxy.commands.audit.app import app

__all__ = ["app"]
