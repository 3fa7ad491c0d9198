"""Revisions, newest last; a new one is a new file."""
