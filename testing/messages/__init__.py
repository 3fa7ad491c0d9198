"""Messages that a stream of trajectories may carry."""
