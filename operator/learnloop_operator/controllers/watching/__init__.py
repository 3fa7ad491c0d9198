"""Kopf's handlers, and which objects a change concerns."""
