"""The files that a trainer and an engine exchange: docs/reference/engines.md."""

from typing import Annotated, Any

from pydantic import Field

from learnloop_api.kinds.behaviour import Behaviour
from learnloop_api.wire.base import MOST, Name, Real, Sentence, WireModel
from learnloop_api.wire.training import FigureName

ENV_DIRECTORY = "LEARNLOOP_ENGINE_DIRECTORY"
"""Variable of the engine: the folder with all these files."""
ORDER, RESUME, EPISODES = "order.json", "resume", "episodes.jsonl"
"""Files that an engine gets; the order is the last one to appear."""
HEARTBEAT, CHECKPOINT, POLICY, RESULT = "heartbeat.json", "checkpoint", "policy.onnx", "result.json"
"""Files that it hands in. It writes each under another name and renames it."""
ADAPTER, ADAPTER_CONFIG, WEIGHTS = "adapter_model.safetensors", "adapter_config.json", "model.safetensors"
"""In the place of the policy, of a language model: an adapter, which are two files, or whole weights."""
ERROR = "error"
"""One sentence, where it fails."""
EXIT, STOP = "exit-code", "stop"
"""Between the trainer and the script that runs the command in an engine's container: how it ended, and that it must."""
SEEDS = 1024
MOST_WITNESSES = 10_000
WitnessRow = Annotated[list[Real], Field(min_length=1, max_length=65_536)]


class EngineLanguageModel(WireModel):
    """The language model that an engine trains."""

    base_uri: str = Field(description="spec.data.languageModel.base.uri")
    base_sha256: str = Field(description="digest of the base model's folder")
    folder: str | None = Field(description="where this container has that folder; null: the engine fetches it")
    context_length: int = Field(ge=1, description="tokens of a conversation at most")
    max_tokens: int = Field(ge=1, description="tokens of an answer at most")
    temperature: float = Field(ge=0, description="at which the held-out conversations are drawn")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="given to the chat template")


class EngineOrder(WireModel):
    """order.json: all that an engine is asked for."""

    job: Name
    attempt: int = Field(ge=0, description="from 0")
    rank: int = Field(ge=0, description="of this process, as RANK; rank 0 alone hands anything in")
    world_size: int = Field(ge=1)
    algorithm: str
    total_steps: int = Field(ge=1, description="environment steps of all ranks together")
    seed: int = Field(ge=0, description="of everything random")
    environment_seeds: list[int] = Field(description="for reset(seed=…); none of them is of a held-out episode")
    environment: str = Field(description="spec.data.environment: a name of Gymnasium's, or module:EntryPoint")
    max_steps_per_episode: int | None = Field(
        default=None,
        ge=1,
        description="spec.data.maxStepsPerEpisode; null: the environment's own limit",
    )
    language_model: EngineLanguageModel | None = Field(
        default=None, description="what it trains; null with a policy of numbers, else the spaces below are"
    )
    observations: int | None = Field(default=None, ge=1, description="numbers in a flattened observation")
    actions: int | None = Field(
        default=None, ge=1, description="how many choices there are, or of how many numbers an action is"
    )
    low: list[float] | None = Field(default=None, description="of each number of an action; null for choices alone")
    high: list[float] | None = None
    choices: int = Field(default=0, ge=0, description="the first number of an action is one of so many choices")
    behaviour: Behaviour | None = Field(default=None, description="wanted by spec.export.behaviour")
    settings: dict[str, Any] = Field(default_factory=dict, description="spec.settings")


class EngineHeartbeat(WireModel):
    """heartbeat.json: how far it is, replaced at least each minute."""

    step: int = Field(ge=0, le=MOST, description="environment steps done by all ranks together")
    returns: list[Real] = Field(default_factory=list, max_length=200, description="of the newest episodes")
    figures: dict[FigureName, Real] = Field(default_factory=dict, max_length=64, description="e.g. loss")


class Witness(WireModel):
    """Outputs of the trained network itself, which policy.onnx must repeat."""

    observations: list[WitnessRow] = Field(min_length=1, max_length=MOST_WITNESSES)
    outputs: list[WitnessRow] = Field(
        min_length=1, max_length=MOST_WITNESSES, description="logits of each choice, or the greedy numbers"
    )


class EngineResult(WireModel):
    """result.json: the engine's part of the proof, written last."""

    step: int = Field(ge=1, le=MOST)
    behaviour: Behaviour | None = Field(default=None, description="how the policy acts; null of a language model")
    witness: Witness | None = Field(default=None, description="null of a language model")
    versions: dict[str, Annotated[Sentence, Field(max_length=253)]] = Field(default_factory=dict, max_length=16)
