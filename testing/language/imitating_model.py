"""A tiny language model that has imitated, made once for a module's tests."""

from pathlib import Path

import pytest
import torch

from learnloop_environments.conversations.tool_lookup import ToolLookup
from testing.language.tiny_model import make


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 118,000 parameters that imitate demonstrations of which two thirds err."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("base")
    make(folder, ToolLookup())
    return folder
