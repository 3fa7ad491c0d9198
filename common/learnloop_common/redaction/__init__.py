"""Removes secrets and personal data from text."""
