"""Callers: who they are, by their service-account tokens."""
