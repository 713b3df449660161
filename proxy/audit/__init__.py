"""The audit trail: events, the durable local log, shipping to the store, the hash chain, and reading it all back."""
