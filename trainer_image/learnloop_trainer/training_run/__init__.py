"""One rank's run: its checkpoints, curriculum, and where it begins."""
