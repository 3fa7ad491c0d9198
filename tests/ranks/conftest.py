"""Small orders and real ranks."""

from rank_world import launch, small

__all__ = ["launch", "small"]
