"""The language model that an agent speaks by: what gateways serve, and what training jobs learn from."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from learnloop_api.kinds.base import Digest, Opaque, Resource
from learnloop_api.kinds.cel_rules import Rule, explained

ModelUri = Annotated[
    str,
    Field(
        min_length=8,
        max_length=2048,
        pattern=r"^(file:///[^?#]+|s3://[^/?#]+/[^?#]+|pvc://[a-z0-9][-a-z0-9.]*(/[^?#]+)?|oci://[^/?#]+/[^?#]+)$",
        json_schema_extra=dict(
            explained(
                "must be file:///FOLDER, s3://BUCKET/PREFIX, pvc://CLAIM/FOLDER or oci://REGISTRY/REPOSITORY@sha256:…"
            )
        ),
    ),
]
"""Where the folder of a model lies, as transformers saves it."""


class BaseModel(Resource):
    """The model before anything was learned: a folder as `save_pretrained` of transformers writes it."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("!self.uri.contains('/../') && !self.uri.endsWith('/..')", "a path has no ..: name the folder", ".uri"),
    )

    uri: ModelUri = Field(
        description="file:///FOLDER in the pods (mount it by pod.volumes), s3://BUCKET/PREFIX, pvc://CLAIM/FOLDER of "
        "this namespace, or oci://REGISTRY/REPOSITORY@sha256:… as a volume of the image."
    )
    sha256: Digest = Field(
        description="Digest of the folder, as this prints it inside of it: find . -type f | LC_ALL=C sort | "
        "xargs -d '\\n' sha256sum | sha256sum. Who reads the model refuses another one."
    )


class LanguageTool(Resource):
    """A function that the model may call."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            pattern=r"^[A-Za-z0-9_-]+$",
            json_schema_extra=dict(explained("must be letters, digits, '_' and '-'")),
        ),
    ] = Field(description="Its name.")
    description: Annotated[str, Field(max_length=4096)] = Field(default="", description="What it does, for the model.")
    parameters: Opaque = Field(default_factory=dict, description="JSON schema of its arguments.")

    def to_openai(self) -> dict[str, Any]:
        """The tool as the Chat Completions API and chat templates take it."""
        schema = self.parameters or {"type": "object", "properties": {}}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": schema},
        }


class LanguageSampling(Resource):
    """How answers are drawn where a request does not say."""

    temperature: float = Field(default=1.0, ge=0, le=2, description="Logits are divided by it; 0: the likeliest token.")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="Share of the distribution that is drawn from; below 1 nothing is learned."
    )
    top_k: int = Field(
        default=0, ge=0, le=1_000_000, description="Only so many likeliest tokens; 0: all. Above 0 nothing is learned."
    )
    max_tokens: int = Field(default=512, ge=1, le=1_048_576, description="Tokens of an answer at most.")


class LanguageModel(Resource):
    """A base model with all that decides what it says but the weights that are learned."""

    base: BaseModel = Field(description="The model before anything was learned; arms are adapters or weights of it.")
    template_sha256: Digest | None = Field(
        default=None,
        description="SHA-256 of the chat template's text; left out, whatever the base model's folder holds. Turns of "
        "another template are not learned from.",
    )
    tools: list[LanguageTool] = Field(
        default_factory=list,
        max_length=128,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="What the model may call. Left out: the tools of the environment in training, those of each "
        "request in serving.",
    )
    sampling: LanguageSampling = Field(default_factory=LanguageSampling)
    context_length: int | None = Field(
        default=None,
        ge=16,
        le=16_777_216,
        description="Tokens of a conversation at most; left out, as many as the model's config.json says.",
    )


BASE_SCHEME = "base://"
"""Of the address of an arm that adds nothing to the base model; the digest of the base follows."""


def base_alone(model: LanguageModel) -> str:
    """The address of the arm that adds nothing to the base model."""
    return f"{BASE_SCHEME}{model.base.sha256}"
