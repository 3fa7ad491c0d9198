"""Opens the vector store that the configuration names."""

from urllib.parse import urlsplit

from learnloop_dataplane.config import Config
from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.vectors.pgvector import PgVectors
from learnloop_dataplane.vectors.vector_store import VectorStore

GRPC_PORT = 50051


def open_vectors(config: Config, db: Database, embedder: Embedder | None) -> VectorStore | None:
    """Weaviate where its URL is given, otherwise pgvector; None without an embedder.

    weaviate-client, which brings gRPC, is imported only where it is used.

    Raises:
        ConfigError: the URL has no host or an invalid port, or there is no embedder.
    """
    if embedder is None:
        if config.weaviate_url is not None:
            raise ConfigError(
                f"LEARNLOOP_WEAVIATE_URL={config.weaviate_url}: a Weaviate holds vectors, and LEARNLOOP_EMBEDDER is "
                "none; set an embedder, or no Weaviate"
            )
        return None
    if config.weaviate_url is None:
        return PgVectors(db)
    from learnloop_dataplane.vectors.weaviate import WeaviateVectors
    from learnloop_dataplane.vectors.weaviate_tenants import Address, WeaviateTenants

    try:
        url = urlsplit(config.weaviate_url)
        secure = url.scheme == "https"
        port = url.port or (443 if secure else 80)
    except ValueError as error:
        raise ConfigError(f"LEARNLOOP_WEAVIATE_URL={config.weaviate_url}: {error}; give http(s)://host:port") from None
    if not url.hostname:
        raise ConfigError(f"LEARNLOOP_WEAVIATE_URL={config.weaviate_url}: names no host; give http(s)://host:port")
    grpc_host, _, grpc_port = (config.weaviate_grpc or f"{url.hostname}:{GRPC_PORT}").rpartition(":")
    key = config.weaviate_key.get_secret_value() if config.weaviate_key else None
    tenants = WeaviateTenants(Address(url.hostname, port, secure, grpc_host, int(grpc_port)), key)
    return WeaviateVectors(db, tenants, embedder.name, config.exact_up_to)
