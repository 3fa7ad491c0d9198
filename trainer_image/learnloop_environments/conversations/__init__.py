"""Worlds that a language model talks to: conversations with tools."""
