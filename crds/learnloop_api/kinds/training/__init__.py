"""What a TrainingJob says beside its own fields: algorithms, evaluation, safety, tracking."""
