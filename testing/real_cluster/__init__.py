"""What tests on a real cluster do, and the agents that play there."""
