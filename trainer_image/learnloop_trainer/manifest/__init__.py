"""Proof of a trained model: export, evaluation, comparison, and the manifest."""
