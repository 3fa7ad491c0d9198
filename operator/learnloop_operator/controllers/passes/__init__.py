"""One pass over one object: gather, decide, apply."""
