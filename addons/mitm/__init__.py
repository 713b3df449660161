"""Every part of mitmproxy that Interlock replaces, and why."""
