"""What the verbs share that steer a rollout or a training run."""
