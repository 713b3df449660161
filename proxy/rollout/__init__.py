"""Policy roll-out: versions that are signed once and in force at every replica that can verify them."""
