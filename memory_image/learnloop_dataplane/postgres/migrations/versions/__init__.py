"""Revisions by number; a new one is a new file."""
