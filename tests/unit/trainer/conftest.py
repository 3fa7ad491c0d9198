"""Small orders."""

from importlib.util import find_spec

from testing.training.training_ranks import make_order, small

__all__ = ["make_order", "small"]

if find_spec("torch"):  # otherwise the modules that import it are skipped
    import torch

    torch.set_num_threads(1)
