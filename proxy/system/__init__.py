"""Files, ports, logs, event loop, garbage collector and imports: what every process needs from its operating system."""
