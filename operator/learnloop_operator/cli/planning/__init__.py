"""`kubectl learnloop plan`: recorded rollouts, their evidence, and the replay as text."""
