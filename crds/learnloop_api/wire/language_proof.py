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
