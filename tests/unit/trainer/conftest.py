"""Small orders."""

import torch

from testing.training.training_ranks import make_order, small

__all__ = ["make_order", "small"]

torch.set_num_threads(1)
