"""Storing memories and indexing them."""
