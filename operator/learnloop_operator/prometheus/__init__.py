"""Prometheus: the queries, the client, and what its answers say of each arm."""
