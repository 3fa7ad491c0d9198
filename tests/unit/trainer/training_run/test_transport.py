"""By what ranks talk: NCCL where each has a GPU of its own, gloo wherever it would refuse."""

import pytest

from learnloop_trainer.distributed import transport


@pytest.mark.parametrize(
    ("devices", "nccl", "expected"),
    [
        (["", ""], True, "gloo"),
        (["GPU-a", "GPU-b"], True, "cpu:gloo,cuda:nccl"),
        (["GPU-a", "GPU-a"], True, "cpu:gloo,cuda:gloo"),
        (["GPU-a", "GPU-b", "GPU-a"], True, "cpu:gloo,cuda:gloo"),
        (["GPU-a", "GPU-b"], False, "cpu:gloo,cuda:gloo"),
        (["GPU-a", ""], True, "gloo"),
    ],
    ids=["CPUs", "a GPU each", "one GPU for both", "one GPU shared of two", "torch without NCCL", "a GPU and a CPU"],
)
def test_ranks_talk_by_what_all_of_them_can(devices: list[str], nccl: bool, expected: str) -> None:
    assert transport(devices, nccl=nccl) == expected
