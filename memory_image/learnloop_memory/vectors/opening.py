"""Which vector store the configuration means."""

from urllib.parse import urlsplit

from learnloop_memory.config import Config
from learnloop_memory.errors import ConfigError
from learnloop_memory.memory.embedder import Embedder
from learnloop_memory.store.database import Database
from learnloop_memory.vectors.pgvector import PgVectors
from learnloop_memory.vectors.port import VectorStore

GRPC_PORT = 50051


def open_vectors(config: Config, db: Database, embedder: Embedder) -> VectorStore:
    """Weaviate where its URL is given, otherwise pgvector. weaviate-client, which brings gRPC, is imported only then.

    Raises:
        ConfigError: the URL has no host, or a port that is none.
    """
    if config.weaviate_url is None:
        return PgVectors(db, embedder, config.dsn.get_secret_value(), config.index_build_mib)
    from learnloop_memory.vectors.tenants import Address, Tenants
    from learnloop_memory.vectors.weaviate import WeaviateVectors

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
    address = Address(url.hostname, port, secure, grpc_host, int(grpc_port))
    return WeaviateVectors(db, embedder, Tenants(address, key))
