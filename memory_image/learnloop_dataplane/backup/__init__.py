"""Backups of an installation: the database, the artifacts, and a signed manifest of their digests."""
