"""Requests to language models, and the words in them."""
