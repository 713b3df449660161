"""What the replicas on one Postgres share: agents, operators, pins and keys; the state folder mirrors it."""
