"""Artifacts, checkpoints and training runs."""
