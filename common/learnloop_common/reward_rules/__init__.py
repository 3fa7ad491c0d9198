"""Rewards of an episode under a RewardPolicy: pure rules that the data plane and the trainer share."""
