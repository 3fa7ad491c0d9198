"""Routers of others that are told of the arms, as they were shipped."""
