"""The values, Protocols, reason codes and JSON encoding that every other package uses. Pure: no I/O."""
