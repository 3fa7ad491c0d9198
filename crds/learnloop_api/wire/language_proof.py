"""What the manifest of a language model says beside that of any run."""

from typing import Literal

from pydantic import Field

from learnloop_api.wire.base import MOST, Sha256, WireModel


class LanguageProof(WireModel):
    """Which model was trained from what, and what it did in held-out conversations."""

    base_uri: str = Field(max_length=2048)
    base_sha256: Sha256 = Field(description="of the base model's folder; beside another one the artifact means nothing")
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
    """Which reward model was learned from whose preferences, and how often it prefers as people did."""

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
