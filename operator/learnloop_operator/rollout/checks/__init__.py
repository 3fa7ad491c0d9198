"""Checks: one module for each kind of evidence."""
