"""Learning on one thread: small networks gain nothing from a second one."""

import torch

torch.set_num_threads(1)
