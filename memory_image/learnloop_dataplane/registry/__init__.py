"""Artifacts, model deployments and training runs."""
