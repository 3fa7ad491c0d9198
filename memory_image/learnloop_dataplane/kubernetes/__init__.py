"""Calls to the Kubernetes API server."""
