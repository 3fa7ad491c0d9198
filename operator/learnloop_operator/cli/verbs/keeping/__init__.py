"""Verbs that keep an installation: its backups."""
