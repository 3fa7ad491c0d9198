"""garak as a suite: what it is told, and how its report becomes ours. garak itself is in the gate's image alone."""
