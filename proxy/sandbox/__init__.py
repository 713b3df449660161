"""Linux namespaces, mounts and capabilities, used by the probe and by `interlock confine`."""
