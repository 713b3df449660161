"""Puts Interlock into the pods of a Kubernetes namespace: an admission webhook and what it adds."""
