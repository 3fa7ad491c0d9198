"""One rank's run: its session, checkpoints, curriculum, and where it begins."""
