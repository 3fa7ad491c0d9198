"""Rollouts of a ModelDeployment: analysis, steps, experiments, shadow mode."""
