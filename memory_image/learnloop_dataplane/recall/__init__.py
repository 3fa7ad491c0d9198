"""Recall: from a query to ranked memories, and what is learned from their use."""
