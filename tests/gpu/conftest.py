"""Tests of a machine with a GPU. Elsewhere they are skipped, and say why; DEVICE=cpu rehearses them on the CPU."""

import os

import pytest
import torch

from testing.training.training_ranks import launch, small

__all__ = ["launch", "small"]

REHEARSED = os.environ.get("DEVICE") == "cpu"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """No GPU, no test; one GPU, none that needs two."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for item in items:
        item.add_marker(pytest.mark.timeout(600))
        needed = 2 if item.get_closest_marker("two_gpus") else 1
        if count < needed and not (REHEARSED and needed == 1):
            has = f"this machine has {count}" if count else f"torch {torch.__version__} finds none here"
            item.add_marker(pytest.mark.skip(reason=f"needs {needed} GPU(s): {has}"))


@pytest.fixture(scope="session")
def device() -> str:
    """The device that the first rank says it trains on."""
    return "cpu" if REHEARSED else "cuda:0"
