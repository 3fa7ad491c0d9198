"""How much one agent may remember."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import (
    HttpUrl,
    KubeName,
    PodOptions,
    Resource,
    Rule,
    SecretRef,
    ShortText,
    Status,
    explained,
    immutable,
)
from learnloop_api.wire.memory_budget import MOST_MEMORIES, MemoryBudget

_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


class MemoryLimit(Resource):
    """Limits that agents and services have in common."""

    memories: int | None = Field(default=None, ge=1, le=MOST_MEMORIES, description="Memories of all types together.")
    size: (
        Annotated[
            str,
            Field(
                pattern=r"^[1-9][0-9]{0,5}(Ki|Mi|Gi)$",
                max_length=8,
                json_schema_extra=dict(explained("must be a whole number of Ki, Mi or Gi, e.g. 64Mi")),
            ),
        ]
        | None
    ) = Field(default=None, description="What content and text take in PostgreSQL, without index and vectors.")

    @property
    def bytes(self) -> int | None:
        """`size` as a number; None: no limit, or one this version cannot read."""
        match = re.fullmatch(r"([0-9]+)(Ki|Mi|Gi)", self.size or "")
        return int(match[1]) * _UNITS[match[2]] if match else None


class ServiceMemoryLimit(MemoryLimit):
    """The limit of a MemoryService."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.memories) || has(self.size)", "set memories or size, or leave agentBudget out"),
    )


class AgentMemoryBudget(MemoryLimit):
    """Budget of one agent: above it, the least valuable memories that are not pinned are forgotten."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.memories) || has(self.size)", "set memories or size, or leave budget out"),
    )

    def limits(self) -> MemoryBudget:
        """The budget as the data plane takes it."""
        return MemoryBudget(memories=self.memories, bytes=self.bytes)


class Storage(Resource):
    """PostgreSQL with pgvector, run by learnloop on a volume."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        # A StatefulSet's claims cannot change, and the operator may not write claims.
        *immutable("size", "resize the claim data-NAME-postgres-0, or move to a new MemoryService"),
        *immutable("storageClassName", "a volume cannot move; create a new MemoryService", optional=True),
    )

    size: Annotated[
        str,
        Field(
            pattern=r"^[1-9][0-9]*(Mi|Gi|Ti)$",
            max_length=16,
            json_schema_extra=dict(explained("must be a whole number of Mi, Gi or Ti, e.g. 10Gi")),
        ),
    ] = Field(
        default="1Gi",
        description="Size of the volume. To grow it later, resize its claim.",
    )
    storage_class_name: KubeName | None = Field(
        default=None, description="StorageClass of the volume; left out, the cluster's default. Immutable."
    )
    pod: PodOptions = Field(default_factory=PodOptions, description="The database's pod.")


class SecretKeyRef(Resource):
    """A key of a Secret in the same namespace."""

    name: KubeName = Field(description="Name of the Secret.")
    key: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="The key inside it.")


class Weaviate(Resource):
    """A Weaviate (1.27 or later) that you run: its index can be rebuilt from PostgreSQL at any time."""

    url: Annotated[
        str,
        Field(
            pattern=r"^https?://[a-zA-Z0-9.-]+(:[0-9]{1,5})?$",
            max_length=253,
            json_schema_extra=dict(explained("must be http(s)://host:port, e.g. http://weaviate.vectors.svc:8080")),
        ),
    ] = Field(description="Where it answers REST: http(s)://host:port.")
    grpc: Annotated[
        str | None,
        Field(
            pattern=r"^[a-zA-Z0-9.-]+:[0-9]{1,5}$",
            max_length=253,
            json_schema_extra=dict(explained("must be host:port, e.g. weaviate-grpc.vectors.svc:50051")),
        ),
    ] = Field(default=None, description="Where it answers gRPC, host:port; left out, the URL's host and port 50051.")
    api_key_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Holds an API key that may create collections and tenants; left out, none is sent."
    )


ModelName = Annotated[
    str,
    Field(
        pattern=r"^[^# ]+$",
        max_length=253,
        json_schema_extra=dict(explained("must be the name that the server knows the model by, without # and spaces")),
    ),
]


class ModelVolume(Resource):
    """A volume that holds an embedder's files."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.claimName) != has(self.image)", "set exactly one of claimName and image"),
    )

    claim_name: KubeName | None = Field(
        default=None, description="A PersistentVolumeClaim of the namespace; it is mounted read-only."
    )
    image: ShortText | None = Field(
        default=None, description="An OCI image whose files are the volume; takes Kubernetes 1.33 or later."
    )
    path: (
        Annotated[
            str,
            Field(
                pattern=r"^[a-zA-Z0-9_-][a-zA-Z0-9._-]*(/[a-zA-Z0-9_-][a-zA-Z0-9._-]*)*$",
                max_length=253,
                json_schema_extra=dict(explained("must be a directory inside the volume, e.g. models/minilm")),
            ),
        ]
        | None
    ) = Field(default=None, description="Directory inside the volume; left out, its root.")


class Embedder(Resource):
    """Embedder of texts: a server with an OpenAI-compatible /embeddings, or a model on a volume."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.url) != has(self.volume)", "set exactly one of url (a server) and volume (a model's files)"),
        Rule("has(self.url) == has(self.model)", "set model with url, and only then", ".model"),
    )

    url: HttpUrl | None = Field(default=None, description="Base of a server's API, https://host/v1.")
    model: ModelName | None = Field(default=None, description="Name the server knows the model by.")
    dimensions: int = Field(default=1536, ge=1, le=4000, description="Length of the server's vectors.")
    api_key_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Holds the server's API key; left out, none is sent."
    )
    timeout_seconds: int = Field(default=10, ge=1, le=120, description="For an answer of the server.")
    volume: ModelVolume | None = Field(
        default=None, description="Where a model's files are: model.onnx and vocab.txt of a BERT sentence-transformer."
    )


class Distiller(Resource):
    """A language model that says what an agent's episodes have in common; without one they are counted."""

    url: HttpUrl = Field(description="Base of a server's OpenAI-compatible API, https://host/v1.")
    model: ModelName = Field(description="Name the server knows the model by.")
    api_key_secret_ref: SecretKeyRef | None = Field(
        default=None, description="Holds the server's API key; left out, none is sent."
    )
    timeout_seconds: int = Field(
        default=30, ge=1, le=60, description="For one answer of the model; all answers of one pass have twice that."
    )


class MemoryServiceSpec(Resource):
    """Either `storage` (learnloop runs PostgreSQL) or `dsnSecretRef` (you do)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.storage) != has(self.dsnSecretRef)",
            "set exactly one of storage (learnloop runs PostgreSQL) and dsnSecretRef (you run it)",
        ),
        Rule(
            "has(self.storage) == has(oldSelf.storage)",
            "cannot change between storage and dsnSecretRef, the data would stay behind: create a new MemoryService",
        ),
        Rule(
            "has(self.weaviate) == (self.engine == 'weaviate')",
            "set weaviate with engine: weaviate, and only then",
            ".weaviate",
        ),
        Rule(
            "!has(self.weaviate) || has(self.embedder)",
            "a Weaviate holds vectors, which an embedder makes: set embedder, or use engine: postgres",
            ".embedder",
        ),
        Rule(
            "self.consolidateEverySeconds == 0 || self.consolidateEverySeconds >= 60",
            "must be 60 or more, or 0 to consolidate only when asked",
            ".consolidateEverySeconds",
        ),
    )

    engine: Literal["postgres", "weaviate"] = Field(
        default="postgres",
        description="What proposes the nearest memories of an agent that has too many to scan: pgvector, or Weaviate, "
        "with a tenant for each agent. PostgreSQL keeps the memories either way, so this may change at any time.",
    )
    weaviate: Weaviate | None = Field(default=None, description="Where Weaviate answers; with engine: weaviate.")
    storage: Storage | None = Field(
        default=None, description="learnloop runs PostgreSQL on a volume of this size. `storage: {}` takes defaults."
    )
    dsn_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description="Holds postgresql://user:password@host:port/database; the database needs the vector extension.",
    )
    replicas: int = Field(
        default=1, ge=0, le=50, description="Pods of the service in front of the database; the scale subresource."
    )
    retention_days: int = Field(
        default=30,
        ge=1,
        le=3650,
        description="Days for which the data plane keeps episodes with their rewards, the record of recalls, what "
        "was forgotten, and memories made of episodes. Pinned memories stay. What agents stored "
        "themselves stays until it is forgotten.",
    )
    consolidate_every_seconds: int = Field(
        default=3600,
        ge=0,
        le=2_592_000,
        description="Seconds between two consolidations of an agent that has new memories: duplicates end, episodes "
        "become facts and procedures. 0: only when it is asked for.",
    )
    language: Annotated[
        str,
        Field(
            pattern=r"^[a-z]{2,32}$",
            max_length=32,
            json_schema_extra=dict(
                explained("must be none or a language that Snowball has a stemmer for, e.g. german")
            ),
        ),
    ] = Field(default="english", description="Language of the stemmer and stop words of search, or none.")
    embedder: Embedder | None = Field(
        default=None, description="What makes vectors of memories; left out, memories are found by their words alone."
    )
    distiller: Distiller | None = Field(
        default=None,
        description="A language model for consolidation and for the kinds of memories. Left out: counts and rules.",
    )
    agent_budget: ServiceMemoryLimit | None = Field(
        default=None,
        description="How much each agent may remember here: above, what is worth least by value and freshness is "
        "forgotten, within about a minute; pinned memories stay. An agent may have a smaller budget of its own. Left "
        "out, only those hold.",
    )
    pod: PodOptions = Field(default_factory=PodOptions, description="The pods of the service.")
    suspend: bool = Field(default=False, description="The operator leaves everything as it is until this is false.")


class MemoryServiceStatus(Status):
    """Whether it answers, and where."""

    url: ShortText | None = Field(default=None, description="Base URL of its REST interface.")
    replicas: int | None = Field(default=None, ge=0, description="Pods that exist.")
    ready_replicas: int | None = Field(default=None, ge=0, description="Pods that answer.")
    selector: ShortText | None = Field(default=None, description="Label selector of the pods; for autoscalers.")
    credentials: SecretRef | None = Field(default=None, description="Secret with the database's generated password.")
