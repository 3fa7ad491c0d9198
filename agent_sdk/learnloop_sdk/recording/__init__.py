"""Trajectories on their way to the data plane: kept, delivered, acknowledged."""
