"""Where events are kept: the local durable log, and the stores it is shipped to."""
