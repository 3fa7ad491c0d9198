"""Migrations v0021 to v0040."""
