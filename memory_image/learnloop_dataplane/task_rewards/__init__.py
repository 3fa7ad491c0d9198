"""What evaluators make of stored episodes, and how rewards are divided among the agents that took part."""
