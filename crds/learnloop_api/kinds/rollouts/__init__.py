"""What a ModelDeployment says of its rollouts: analysis, steps, experiments, shadow mode."""
