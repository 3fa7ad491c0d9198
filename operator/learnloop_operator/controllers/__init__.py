"""Kopf wiring: one file per kind, each gather, decide, apply."""
