"""Simulated clusters for whole rollouts, without an API server."""
