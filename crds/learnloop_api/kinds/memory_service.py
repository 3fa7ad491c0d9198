"""MemoryService: a namespace's own memory and experience service."""

from typing import Annotated, Literal

from pydantic import Field

from learnloop_api.kinds.base import LocalRef, PodOptions, Resource, ShortText, Status


class Storage(Resource):
    """PostgreSQL with pgvector, run by learnloop on a volume."""

    size: Annotated[str, Field(pattern=r"^[1-9][0-9]*(Mi|Gi|Ti)$", max_length=16)] = "1Gi"
    storage_class_name: Annotated[str, Field(max_length=253)] | None = None
    pod: PodOptions = Field(default_factory=PodOptions)


class SecretKeyRef(Resource):
    """A key of a Secret in the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    key: Annotated[str, Field(min_length=1, max_length=253)]


class MemoryServiceSpec(Resource):
    """Either `storage` (learnloop runs PostgreSQL) or `dsnSecretRef` (you do)."""

    engine: Literal["postgres"] = "postgres"
    storage: Storage | None = None
    dsn_secret_ref: SecretKeyRef | None = Field(
        default=None,
        description="holds postgresql://user:password@host:port/database; needs the vector extension",
    )
    replicas: int = Field(default=1, ge=0, le=50)
    retention_days: int = Field(default=30, ge=1, le=3650, description="how long trajectories are kept")
    pod: PodOptions = Field(default_factory=PodOptions)
    suspend: bool = False


class MemoryServiceStatus(Status):
    """Whether it answers, and where."""

    url: ShortText | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    selector: ShortText | None = None
    credentials: LocalRef | None = None
