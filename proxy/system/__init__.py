"""What the process needs from the operating system: files, ports, logs, event loop, garbage collector, imports."""
