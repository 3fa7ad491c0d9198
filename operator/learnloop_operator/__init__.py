"""The learnloop operator: gather the world, decide purely, apply the plan."""
