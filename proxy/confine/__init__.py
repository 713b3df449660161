"""`interlock confine`: runs an agent in namespaces whose only connection to the outside is the proxy."""
