"""Who did what, when, to what: an append-only hash chain for each namespace, signed, and the means to check it."""
