"""Encryption at rest: what the data plane and the SDK write, and both read."""
