"""Collectives inside of computations: a lost peer is one, and a mistake of the program is none."""

import pytest
import torch

from learnloop_trainer.distributed.torch_group import computing
from learnloop_trainer.errors import PeerLost


@pytest.mark.parametrize(
    "said",
    [
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9999",
        "NCCL error in: ProcessGroupNCCL.cpp:1, remote process exited",
        "Timed out waiting 60000ms for recv operation to complete",
    ],
)
def test_what_a_lost_peer_does_to_a_computation_is_a_lost_peer(said: str) -> None:
    with pytest.raises(PeerLost), computing():
        raise RuntimeError(said)


def test_a_mistake_and_a_full_gpu_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), computing():
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    with pytest.raises(torch.OutOfMemoryError), computing():
        raise torch.OutOfMemoryError("CUDA out of memory; see NCCL")
