"""Steps of a training or a rollout that have ended, read from the status before a pass and the one after it."""
