"""One agent's loop: experience, triggers, training jobs, the model to serve."""
