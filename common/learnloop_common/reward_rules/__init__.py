"""What a RewardPolicy makes of an episode: pure rules that the data plane and the trainer share."""
