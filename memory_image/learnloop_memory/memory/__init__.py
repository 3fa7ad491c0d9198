"""Memories: the embedder, storing, recalling, and episodes turned into memories."""
