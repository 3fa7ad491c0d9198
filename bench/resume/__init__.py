"""The cost of an interruption for a training run: `make bench-resume`."""
