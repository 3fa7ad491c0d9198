"""How often the rollout errs and how soon it is right: simulated rollouts through the evidence of the operator."""
