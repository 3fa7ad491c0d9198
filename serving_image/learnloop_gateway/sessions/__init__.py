"""Conversations: which tokens they consist of, how their turns are kept, and how they become trajectories."""
