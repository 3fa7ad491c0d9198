"""Which steps of a training or a rollout have ended, read from the status before a pass and the one after it."""
