"""Worlds with a team."""
