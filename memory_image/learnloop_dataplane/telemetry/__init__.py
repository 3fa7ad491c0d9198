"""Metrics of agents, of their model versions and of training runs, with bounded labels."""
