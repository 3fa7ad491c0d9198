"""Evaluators of outputs: one small module each, registered once in registry.py."""
