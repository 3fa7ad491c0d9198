"""Worlds with one who acts."""
