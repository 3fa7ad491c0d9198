"""TrainingJob: from a spec to a proven artifact, one attempt after another."""
