"""The audit trail: events and their store, the durable local log, shipping, the hash chain, and reading it all back."""
