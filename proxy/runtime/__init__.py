"""Puts the parts together and runs them: the supervisor, its worker processes, and the wiring inside one worker."""
