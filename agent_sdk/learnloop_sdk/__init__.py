"""The package that an agent imports: act with the served policy, record the outcome, remember.

`pip install ./crds ./agent_sdk` installs it from a checkout, with aiohttp and pydantic.
"""

from learnloop_sdk.conversation import Conversation
from learnloop_sdk.environments import EpisodeResult, StepResult, execute_with_learning
from learnloop_sdk.episode import Episode
from learnloop_sdk.errors import (
    ArmWithdrawn,
    Counters,
    InvalidObservation,
    LearnloopError,
    PolicyFailed,
    PolicyRefused,
    PolicyUnavailable,
    Stopped,
    Throttled,
)
from learnloop_sdk.learnloop import Learnloop, run
from learnloop_sdk.memory import MemoryClient, People, Recall
from learnloop_sdk.trajectory_encoding import redact_text

__all__ = [
    "ArmWithdrawn",
    "Conversation",
    "Counters",
    "Episode",
    "EpisodeResult",
    "InvalidObservation",
    "Learnloop",
    "LearnloopError",
    "MemoryClient",
    "People",
    "PolicyFailed",
    "PolicyRefused",
    "PolicyUnavailable",
    "Recall",
    "StepResult",
    "Stopped",
    "Throttled",
    "execute_with_learning",
    "redact_text",
    "run",
]
