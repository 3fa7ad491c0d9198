"""Each algorithm on a small task of its own, beside the simpler one it must beat."""
