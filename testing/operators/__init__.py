"""Operators on a real API server that are killed, stopped and watched."""
