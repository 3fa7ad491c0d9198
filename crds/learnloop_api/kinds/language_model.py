"""Language models: base, tools and sampling, and how a ModelDeployment serves them."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import Digest, HttpUrl, KubeName, Opaque, Resource, Resources, Rule, explained

ModelUri = Annotated[
    str,
    Field(
        max_length=2048,
        pattern=r"^(file:///[^?#]+|s3://[^/?#@]+/[^?#]+|pvc://[a-z0-9][-a-z0-9.]*(/[^?#]+)?|oci://[^/?#@]+/[^?#]+)$",
        json_schema_extra=dict(
            explained(
                "must be file:///FOLDER, s3://BUCKET/PREFIX, pvc://CLAIM/FOLDER or oci://REGISTRY/REPOSITORY@sha256:…"
            )
        ),
    ),
]
"""Address of a model's folder, as transformers saves it."""


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
        "xargs -d '\\n' sha256sum | sha256sum. Loading fails if it differs."
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
        default=0,
        ge=0,
        le=1_000_000,
        description="Draw from the K likeliest tokens; 0: all. Above 0 nothing is learned.",
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


ModelName = Annotated[str, Field(min_length=1, max_length=256)]


class KeyRef(Resource):
    """A key of a Secret in this namespace."""

    name: KubeName = Field(description="Name of the Secret.")
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")] = Field(
        default="key", description="Its key."
    )


class LanguageServer(Resource):
    """Server that runs the model. A gateway asks it for tokens with their probabilities."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.kind != 'openai' || has(self.url)",
            "a server that speaks as OpenAI does runs elsewhere: give its address",
            ".url",
        ),
        Rule("!has(self.url) || has(self.model)", "model is required with url: what the server calls it", ".model"),
        Rule(
            "has(self.url) || !has(self.keyRef)",
            "keyRef goes with url: a server in the pod wants no key",
            ".keyRef",
        ),
        Rule(
            "!has(self.url) || !(has(self.image) || has(self.quantization) || has(self.tensorParallel)"
            " || has(self.resources) || self.arguments.size() > 0)",
            "image, arguments, quantization, tensorParallel and resources are of a server in the pod: remove them or "
            "url",
        ),
        Rule(
            "!(has(self.quantization) || has(self.tensorParallel)) || self.kind == 'vllm'",
            "quantization and tensorParallel are vllm's: llama.cpp has them in its file and in arguments",
        ),
        Rule(
            "!has(self.adapterFolder) || (has(self.url) && self.kind == 'vllm')",
            "adapterFolder goes with url and vllm: remove it",
            ".adapterFolder",
        ),
        Rule("!has(self.file) || self.kind == 'llama.cpp'", "file is llama.cpp's: remove it", ".file"),
        Rule(
            "self.kind != 'llama.cpp' || has(self.url) || has(self.file)",
            "file is required with llama.cpp: the GGUF file in the folder of the base model",
            ".file",
        ),
    )

    kind: Literal["vllm", "llama.cpp", "openai"] = Field(
        default="vllm",
        description="vllm and llama.cpp give tokens, which are learned from; openai is any other server that speaks as "
        "OpenAI does: what it says is recorded as text.",
    )
    url: HttpUrl | None = Field(
        default=None,
        description="A server that runs elsewhere, without /v1; if omitted, one runs next to each gateway.",
    )
    model: ModelName | None = Field(default=None, description="With url: what the server calls the model.")
    key_ref: KeyRef | None = Field(default=None, description="With url: the bearer token the server wants.")
    adapter_folder: Annotated[str, Field(max_length=1024, pattern=r"^/[^\s:]*[^\s:/]$")] | None = Field(
        default=None,
        description="vllm with url: a folder that server and gateways see under this path (mount it by pod.volumes). "
        "Arms that are adapters are put there and loaded at run time.",
    )
    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="Image of the server; left out, the installation's."
    )
    file: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*\.gguf$")] | None = Field(
        default=None, description="llama.cpp: the GGUF file in the folder of the base model."
    )
    quantization: Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9_-]+$")] | None = Field(
        default=None, description="vllm: its --quantization, e.g. fp8."
    )
    tensor_parallel: int | None = Field(
        default=None, ge=1, le=64, description="vllm: GPUs that share each layer; ask for as many in resources."
    )
    max_lora_rank: int = Field(default=64, ge=1, le=512, description="vllm: largest rank of an adapter.")
    arguments: list[Annotated[str, Field(max_length=1024)]] = Field(
        default_factory=list, max_length=64, description="More arguments of the server, e.g. --parallel=4."
    )
    resources: Resources | None = Field(
        default=None, description="Of the server's container: limits: {nvidia.com/gpu: 1} for a GPU."
    )


class LanguageFallback(Resource):
    """Server that answers where no arm does: Ollama, or any server of OpenAI's API. Its answers are neither evidence
    nor experience."""

    url: HttpUrl = Field(description="Its address without /v1, e.g. http://ollama:11434.")
    model: ModelName = Field(description="What it calls its model.")
    key_ref: KeyRef | None = Field(default=None, description="The bearer token it wants.")


class LanguageServing(Resource):
    """How the gateway of a language model answers."""

    server: LanguageServer = Field(default_factory=LanguageServer)
    fallback: LanguageFallback | None = Field(default=None, description="Left out, an arm that fails answers 502.")
    pin_accounts: list[Annotated[str, Field(max_length=317, pattern=r"^[a-z0-9-]+/[a-z0-9.-]+$")]] = Field(
        default_factory=list,
        max_length=32,
        json_schema_extra={"listType": "set"},
        description="Service accounts, NAMESPACE/NAME, that may choose an arm by the header x-learnloop-arm: those of "
        "suites that judge a candidate. What they ask is neither evidence nor experience.",
    )
    registration: Literal["tensorZero"] | None = Field(
        default=None,
        description="A router in front of learnloop's that gets the arms and their weights; learnloop still draws. "
        "tensorZero: its file, in the ConfigMap NAME-tensorzero.",
    )
    idle_seconds: int = Field(
        default=900, ge=1, le=86_400, description="A conversation without a request for so long is over."
    )
