"""Backups of an installation: database, artifacts, waiting messages, keys, and a signed manifest of their digests."""
