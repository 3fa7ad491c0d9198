"""What an interruption costs a training run: `make bench-resume`."""
