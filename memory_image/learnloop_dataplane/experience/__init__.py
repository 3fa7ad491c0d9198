"""Trajectories and training requests: from JetStream into PostgreSQL, or to the dead letters."""
