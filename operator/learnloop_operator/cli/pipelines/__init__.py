"""What the verbs share that a pipeline waits for: the options, the end of a rollout, and results as JUnit."""
