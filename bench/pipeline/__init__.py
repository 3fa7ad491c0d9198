"""From a trajectory to a reward: how fast, and that nothing is lost on the way."""
