"""Where weights lie, whole or divided among ranks, and how an optimiser moves them."""
