"""Training orders, ranks in processes, and worlds in which training is decided."""
