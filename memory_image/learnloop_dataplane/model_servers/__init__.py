"""Servers that run models elsewhere, and speak as OpenAI does."""
