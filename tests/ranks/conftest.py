"""Small orders and real ranks."""

from testing.training.training_ranks import launch, small

__all__ = ["launch", "small"]
