"""Revisions by number, twenty to a folder; a new one is a new file."""
