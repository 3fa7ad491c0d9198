"""The acts of tests on a real cluster, and the agents that play there."""
