"""Turns of a language model, and people's preferences between two answers.

A turn is recorded as one step of a trajectory (`agent.rl.trajectory.v1`), so that it is delivered, rewarded, erased and
opted out of as every other experience: `LanguageTurn.to_step` writes it, `turn_of` reads it. The ids are those the
server drew. Text is never encoded again, for the same text may have other ids.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError, model_validator

from learnloop_api.wire.base import MOST, Identifier, Name, Real, Sha256, Timestamp, WireModel
from learnloop_api.wire.trajectory import MAX_REVISION, Step

MAX_TOKENS = 1_048_576
MAX_TURNS = 1024
MAX_TEXT = 262_144
KEY = "language_turn"
"""The one key of a step's observation and of its action, under which the turn stands."""

TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Tokens = Annotated[list[TokenId], Field(min_length=1, max_length=MAX_TOKENS)]


class TokenSampling(WireModel):
    """How the tokens were drawn. A cut distribution (topP below 1, topK above 0) is recorded and never learned from."""

    temperature: float = Field(default=1.0, ge=0, le=100, description="logits were divided by it; 0: the likeliest")
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0, le=MOST, description="0: no limit")
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    seed: int | None = Field(default=None, ge=-MOST, le=MOST)


class ToolCall(WireModel):
    """A call as the server read it from the tokens."""

    id: str = Field(default="", max_length=256)
    name: str = Field(max_length=256)
    arguments: str = Field(max_length=MAX_TEXT, description="the JSON text the model wrote")


class ToolResult(WireModel):
    """Result of a tool, from the next request to the gateway."""

    call_id: str = Field(default="", max_length=256)
    content: str = Field(max_length=MAX_TEXT)


class Usage(WireModel):
    """Tokens as the server counted them."""

    prompt_tokens: int = Field(ge=0, le=MOST)
    completion_tokens: int = Field(ge=0, le=MOST)


class LanguageTurn(WireModel):
    """One answer of a language model with all that learning from it needs."""

    turn_id: Identifier
    session: Identifier = Field(description="the conversation: an episode")
    row: int = Field(default=0, ge=0, le=MAX_TURNS, description="raised where a prompt did not continue the ids before")
    position: int = Field(ge=0, le=MAX_TURNS, description="number of the turn in its session")
    prompt_ids: Tokens = Field(description="all tokens the model saw")
    sampled_ids: Tokens = Field(description="the tokens it drew, the end of the turn included where it was drawn")
    log_probs: list[Annotated[float, Field(ge=-1e9, le=1e-3)]] = Field(
        max_length=MAX_TOKENS, description="natural log of the probability each was drawn with, after the temperature"
    )
    sampling: TokenSampling = Field(default_factory=TokenSampling)
    finish_reason: Literal["stop", "length", "tool_calls", "error"] = "stop"
    policy_revision: str = Field(max_length=MAX_REVISION, description="revision of the policy that spoke")
    base_sha256: Sha256 | None = Field(default=None, description="digest of the base model")
    adapter_sha256: Sha256 | None = Field(default=None, description="digest of the adapter; null for the base alone")
    template_sha256: Sha256 | None = Field(default=None, description="digest of the chat template's text")
    fallback: bool = Field(default=False, description="a model outside the arms answered: never evidence, never data")
    tool_calls: list[ToolCall] = Field(default_factory=list, max_length=128)
    tool_results: list[ToolResult] = Field(default_factory=list, max_length=128)
    usage: Usage | None = None
    latency_seconds: float = Field(default=0.0, ge=0, le=86_400)
    reward: Real = Field(default=0.0, description="the environment's own reward for this turn")
    success: bool | None = Field(default=None, description="of the session, where its last turn knows")
    at: Timestamp

    @model_validator(mode="after")
    def _paired(self) -> "LanguageTurn":
        if len(self.log_probs) != len(self.sampled_ids):
            raise ValueError(f"log_probs has {len(self.log_probs)} numbers for {len(self.sampled_ids)} sampled_ids")
        return self

    @property
    def learnable(self) -> str:
        """Why nothing can be learned from it; empty when something can."""
        if self.fallback:
            return "a fallback answered"
        if self.sampling.temperature == 0:
            return "nothing was drawn at temperature 0"
        if self.sampling.top_p < 1 or self.sampling.top_k:
            return "top_p or top_k cut the distribution"
        return "the server failed" if self.finish_reason == "error" else ""

    def to_step(self) -> Step:
        """The turn as one step of a trajectory: what was seen, and what was done."""
        return Step.model_validate(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """The same as plain data. A step looks at each number of it once more: 1 ms for a thousand tokens."""
        long = {"sampled_ids": self.sampled_ids, "log_probs": self.log_probs}
        document: dict[str, Any] = self.model_dump(mode="json", exclude={"prompt_ids", *long}) | long
        return {
            "observation": {KEY: {"prompt_ids": self.prompt_ids}},
            "action": {KEY: document},
            "log_prob": min(0.0, sum(self.log_probs)),
            "reward": self.reward,
            "exploration": self.sampling.temperature > 0,
        }


def turn_of(step: Step) -> LanguageTurn | None:
    """The turn a step records; None when it records something else. Raises ValueError for one that is damaged."""
    if not isinstance(step.observation, dict) or not isinstance(step.action, dict):
        return None
    current: JsonValue = step.observation.get(KEY)
    answer: JsonValue = step.action.get(KEY)
    if not isinstance(current, dict) or not isinstance(answer, dict):
        return None
    try:
        return LanguageTurn.model_validate(current | answer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"a recorded turn is damaged: {where} {first['msg']}") from None


class ChatMessage(WireModel):
    """One message, as text."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = Field(max_length=MAX_TEXT)


class Answer(WireModel):
    """An answer to compare: as it was sampled, or as text somebody wrote."""

    turns: list[LanguageTurn] = Field(
        default_factory=list, max_length=MAX_TURNS, description="as sampled: nothing is encoded again"
    )
    text: str | None = Field(default=None, max_length=MAX_TEXT, description="where it was not sampled")

    @model_validator(mode="after")
    def _one(self) -> "Answer":
        if bool(self.turns) == (self.text is not None):
            raise ValueError("an answer has turns or text: send exactly one of the two")
        return self


class Preference(WireModel):
    """Somebody compared two answers to the same question. `preference_id` makes posting it idempotent."""

    preference_id: Identifier
    agent: Name = Field(description="name of the LearningAgent")
    messages: list[ChatMessage] = Field(
        default_factory=list, max_length=MAX_TURNS, description="what was asked; required where an answer is text"
    )
    chosen: Answer
    rejected: Answer
    user_id: str | None = Field(default=None, min_length=1, max_length=256, description="whose opinion; may be erased")
    at: Timestamp

    @model_validator(mode="after")
    def _has_question(self) -> "Preference":
        if not self.messages and (self.chosen.text is not None or self.rejected.text is not None):
            raise ValueError("messages is empty: a text answer needs the question it answers")
        if self.chosen == self.rejected:
            raise ValueError("chosen and rejected are the same answer: send two different ones")
        return self


class PreferencePage(WireModel, extra="ignore"):
    """GET /api/v1/preferences: some of them, newest first."""

    preferences: list[Preference]
    next: str | None = Field(max_length=4096, description="`after` of the next page; null: this is the last one")


class LanguageProof(WireModel):
    """Record of a language model: its data, its base, and its results in held-out conversations."""

    base_uri: str = Field(max_length=2048)
    base_sha256: Sha256 = Field(description="of the base model's folder; the artifact is useless with another base")
    template_sha256: Sha256 = Field(description="of the chat template's text")
    tools_sha256: Sha256 = Field(description="of the tools that the template was given, as canonical JSON")
    environment_sha256: Sha256 = Field(description="of the code of the environment")
    weights: Literal["lora", "full"]
    precision: Literal["float32", "bfloat16"] = "float32"
    temperature: float = Field(ge=0, le=100, description="of the held-out conversations")
    max_tokens: int = Field(ge=1, le=MOST)
    context_length: int = Field(ge=1, le=MOST)
    success: float | None = Field(default=None, ge=0, le=1, description="share of held-out tasks it solved")
    greedy_success: float | None = Field(default=None, ge=0, le=1, description="with the likeliest answers")
    baseline_success: float | None = Field(default=None, ge=0, le=1, description="of the model that serves")
    baseline_greedy_success: float | None = Field(default=None, ge=0, le=1)
    mean_tokens: float = Field(ge=0, description="drawn in a held-out conversation")
    truncated: float = Field(ge=0, le=1, description="share of them that a limit cut off")
    curves: dict[str, float] = Field(
        default_factory=dict, max_length=64, description="the last round's reward, kl, loss, entropy, mismatch and more"
    )


class RewardModelProof(WireModel):
    """Record of a reward model: its preferences, and how often it agrees with people."""

    base_uri: str = Field(max_length=2048)
    base_sha256: Sha256 = Field(description="of the base model's folder")
    template_sha256: Sha256 = Field(description="of the chat template's text")
    weights: Literal["lora", "full"]
    precision: Literal["float32", "bfloat16"] = "float32"
    context_length: int = Field(ge=1, le=MOST, description="tokens of question and answer at most")
    pairs: int = Field(ge=1, le=MOST, description="learned from")
    held_out_pairs: int = Field(ge=1, le=MOST, description="never learned from")
    held_out_sha256: Sha256 = Field(description="of the digests of the held-out pairs")
    accuracy: float = Field(ge=0, le=1, description="share of held-out pairs ordered as people did, ties half")
    accuracy_low: float = Field(ge=0, le=1, description="lower end of its 95 % interval (Wilson, 1927)")
    accuracy_high: float = Field(ge=0, le=1)
    learned_accuracy: float = Field(ge=0, le=1, description="the same of the pairs it learned from")
    margin: float = Field(description="mean difference of the scores of held-out pairs")
    centre: float = Field(description="mean score of the answers learned from: 0.5 where it is used as a reward")
    curves: dict[str, float] = Field(default_factory=dict, max_length=64)
