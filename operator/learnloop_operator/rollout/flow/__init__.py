"""Which situation a rollout is in, and what people ordered."""
