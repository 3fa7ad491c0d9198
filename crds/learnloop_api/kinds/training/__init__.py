"""Parts of a TrainingJob's spec and status: algorithms, evaluation, safety, tracking."""
