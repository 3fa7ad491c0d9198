"""Requests that are done once: who works under a key, and what was answered."""
