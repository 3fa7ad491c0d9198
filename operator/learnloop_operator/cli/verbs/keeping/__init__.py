"""Verbs that keep an installation: its backups and its secrets."""
