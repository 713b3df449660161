"""The stores of audit events, proposals and tool pins, on SQLite or Postgres, and what the workers share."""
