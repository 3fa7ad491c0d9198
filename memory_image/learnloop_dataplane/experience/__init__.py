"""Trajectories and training requests: from JetStream into PostgreSQL."""
