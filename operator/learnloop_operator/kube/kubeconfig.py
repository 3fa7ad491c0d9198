"""How to reach the API server: KUBECONFIG, the pod's service account, or ~/.kube/config."""

import os
from pathlib import Path

import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config


class NoCluster(Exception):
    """Neither a service account nor a usable kubeconfig; the message says what to do."""


async def find() -> Configuration:
    """KUBECONFIG when set, else the service account, else ~/.kube/config.

    Raises:
        NoCluster: none of them is usable.
    """
    if path := os.environ.get("KUBECONFIG"):
        return await from_kubeconfig(Path(path.split(os.pathsep)[0]).expanduser())
    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except ConfigException:
        default = Path("~/.kube/config").expanduser()
        if default.exists():
            return await from_kubeconfig(default)
        raise NoCluster("no cluster found: set KUBECONFIG, or run in a pod with a service account token") from None
    return configuration


async def from_kubeconfig(path: Path) -> Configuration:
    """The current context.

    Raises:
        NoCluster: the file cannot be used.
    """
    configuration = Configuration()
    try:
        await load_kube_config(str(path), client_configuration=configuration, persist_config=False)
    except (ConfigException, OSError, yaml.YAMLError) as error:
        raise NoCluster(f"unusable kubeconfig {path}: {error}") from error
    return configuration
