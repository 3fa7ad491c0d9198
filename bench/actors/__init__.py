"""Samplers beside synchronous collection: `make bench-actors`."""
