"""A language model small enough to differentiate twice, and the tokeniser and chat of the tiny world."""

import pytest
import torch

from learnloop_environments.conversations.tool_lookup import ToolLookup
from learnloop_trainer.language.messages_to_tokens import Chat
from testing.language.tiny_model import model, tokeniser

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def words():
    """The tokeniser of the tiny world."""
    return tokeniser(ToolLookup(), seed=0)


@pytest.fixture(scope="session")
def chat(words) -> Chat:
    """The tiny world's chat."""
    return Chat(words, ToolLookup().tools)


@pytest.fixture
def tiny(words):
    """A model with random weights."""
    return model(len(words), seed=3, stop=words.eos_token_id)
