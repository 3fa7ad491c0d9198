"""Returns as means with their uncertainty, and comparisons of two policies."""
