"""Backups of an installation: the database, the artifacts, and a manifest of their digests."""
