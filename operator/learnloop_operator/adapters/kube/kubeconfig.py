"""How to reach the API server: the pod's service account, or the current context of a kubeconfig."""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NoCluster(Exception):
    """Neither a service account nor a usable kubeconfig; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credentials; a token in `token_file` is read anew each minute because kubelets rotate it."""

    server: str
    ssl: ssl.SSLContext | None
    token: str | None = None
    token_file: Path | None = None
    namespace: str = "default"


def find(environment: Mapping[str, str] | None = None, service_account: Path = SERVICE_ACCOUNT) -> Connection:
    """KUBECONFIG when set, else the service account, else ~/.kube/config.

    Raises:
        NoCluster: none of them is usable.
    """
    env = os.environ if environment is None else environment
    if env.get("KUBECONFIG"):
        return from_kubeconfig(Path(env["KUBECONFIG"].split(os.pathsep)[0]).expanduser())
    if (service_account / "token").exists() and env.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(env, service_account)
    default = Path("~/.kube/config").expanduser()
    if default.exists():
        return from_kubeconfig(default)
    raise NoCluster("no cluster to talk to: set KUBECONFIG, or run in a pod with a service account token")


def in_cluster(env: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Connection:
    """The pod's own identity."""
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"[{host}]" if ":" in host else host
    namespace = service_account / "namespace"
    return Connection(
        server=f"https://{address}:{port}",
        ssl=ssl.create_default_context(cafile=str(service_account / "ca.crt")),
        token_file=service_account / "token",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def from_kubeconfig(path: Path) -> Connection:
    """The current context: client certificate or token; exec plug-ins are not run.

    Raises:
        NoCluster: the file cannot be used; names the file and the missing part.
    """
    try:
        config = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise NoCluster(f"kubeconfig {path} cannot be read: {error}") from error
    context = _named(config, path, "contexts", config.get("current-context")).get("context") or {}
    cluster = _named(config, path, "clusters", context.get("cluster")).get("cluster") or {}
    user = _named(config, path, "users", context.get("user")).get("user") or {}
    server = str(cluster.get("server", "")).rstrip("/")
    if not server:
        raise NoCluster(f"kubeconfig {path}: the current context's cluster has no server")
    return Connection(
        server=server,
        ssl=_ssl(cluster, user) if server.startswith("https://") else None,
        token=user.get("token"),
        token_file=Path(user["tokenFile"]) if user.get("tokenFile") else None,
        namespace=context.get("namespace") or "default",
    )


def _named(config: Mapping[str, Any], path: Path, section: str, name: Any) -> Mapping[str, Any]:
    for item in config.get(section) or ():
        if item.get("name") == name:
            return dict(item)
    raise NoCluster(f"kubeconfig {path}: {section} has no entry named {name!r}")


def _ssl(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = cluster.get("certificate-authority-data")
    context = ssl.create_default_context(
        cafile=cluster.get("certificate-authority") if not authority else None,
        cadata=base64.b64decode(authority).decode() if authority else None,
    )
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user.get("client-certificate-data"):
        _load_inline(context, user)
    elif user.get("client-certificate"):
        context.load_cert_chain(user["client-certificate"], user.get("client-key"))
    return context


def _load_inline(context: ssl.SSLContext, user: Mapping[str, Any]) -> None:
    # OpenSSL reads certificate chains from files only: 0600, and gone before this function returns.
    with tempfile.TemporaryDirectory(prefix="learnloop-") as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        for file, field in ((certificate, "client-certificate-data"), (key, "client-key-data")):
            file.touch(mode=0o600)
            file.write_bytes(base64.b64decode(user[field]))
        context.load_cert_chain(certificate, key)
