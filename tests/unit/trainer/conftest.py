"""Small orders and one-rank sessions."""

import torch
from rank_world import launch, make_order, small

__all__ = ["launch", "make_order", "small"]

torch.set_num_threads(1)
