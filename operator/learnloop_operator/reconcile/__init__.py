"""Kopf and the workers: read the world, have a pure decision made, and apply its plan."""
