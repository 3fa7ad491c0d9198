"""Logged experience as arrays."""
