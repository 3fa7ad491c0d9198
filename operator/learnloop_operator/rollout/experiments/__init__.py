"""Experiments: several models compared side by side, and the winner promoted."""
