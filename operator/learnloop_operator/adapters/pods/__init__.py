"""Pods: the counters that policy servers serve, and the ranks of a training run."""
