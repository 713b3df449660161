"""The databases, SQLite and Postgres; the stores of proposals and tool pins, and what the workers share."""
