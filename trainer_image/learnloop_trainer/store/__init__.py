"""Storage of a run's heartbeats, checkpoints, artifact and proof, chosen by its environment variables."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from learnloop_api import names
from learnloop_environments.errors import ConfigError
from learnloop_trainer.store.data_plane_store import DataPlaneStore, Http
from learnloop_trainer.store.run_store import DirectoryStore, SavedCheckpoint, Store

__all__ = ["SavedCheckpoint", "Store", "choose"]
VARIABLE = "LEARNLOOP_STORE"
PATIENCE = "LEARNLOOP_STORE_SECONDS"


def choose(environ: Mapping[str, str], job: str, agent: str | None = None, attempt: int | None = None) -> Store:
    """LEARNLOOP_STORE=file:///directory, else the data plane at LEARNLOOP_DATA_URL; raises ConfigError."""
    local = environ.get(VARIABLE, "")
    if local:
        parts = urlsplit(local)
        if parts.scheme != "file" or parts.netloc or not parts.path.startswith("/"):
            raise ConfigError(VARIABLE, local, "is not a local directory", "write it as file:///directory")
        return DirectoryStore(Path(unquote(parts.path)), job)
    url = environ.get(names.ENV_DATA_URL, "")
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).netloc:
        fix = f"set it to the data plane's address, or {VARIABLE} to file:///directory for a local run"
        raise ConfigError(names.ENV_DATA_URL, url, "is not an http(s) URL", fix)
    text = environ.get(PATIENCE, "300")
    if not text.isdecimal() or not 1 <= int(text) <= 86400:
        raise ConfigError(PATIENCE, text, "is not a number of seconds from 1 to 86400", "correct it")
    token = Path(environ.get(names.ENV_TOKEN_FILE, names.TOKEN_FILE))
    namespace = environ.get(names.ENV_NAMESPACE, "")
    return DataPlaneStore(Http(url.rstrip("/"), token, namespace, float(text)), job, agent, attempt)
