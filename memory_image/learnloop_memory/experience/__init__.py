"""Trajectories: JetStream streams, consumer, redaction and their tables."""
