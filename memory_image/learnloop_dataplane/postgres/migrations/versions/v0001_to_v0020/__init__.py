"""Migrations v0001 to v0020."""
