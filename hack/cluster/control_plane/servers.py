"""etcd and kube-apiserver: the part that every mode has and that needs no root."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.addresses import KUBERNETES_SERVICE, SERVICE_NETWORK
from cluster.control_plane import kubeconfig
from cluster.control_plane.api_client import Api
from cluster.control_plane.pki import Identity, Pki
from cluster.processes import Daemon, Processes
from cluster.state_folder import State
from go_programs import go_build
from toolkit.errors import Refusal
from toolkit.progress import wait_until

LOOPBACK = "127.0.0.1"
READY_SECONDS = 60.0
PROGRAMS = ("etcd", "kube-apiserver")


@dataclass(frozen=True)
class Endpoints:
    """The addresses of the control plane."""

    address: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.api_port}"


def free_endpoints(state: State) -> Endpoints:
    """Loopback ports without a user, the same ones for as long as the state folder lives."""
    note = state.config / "ports"
    if note.exists():
        return Endpoints(LOOPBACK, *map(int, note.read_text().split()))
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(3)]
    ports = [entry.getsockname()[1] for entry in sockets]
    for entry in sockets:
        entry.close()
    note.write_text(" ".join(map(str, ports)))
    return Endpoints(LOOPBACK, *ports)


def identities(endpoints: Endpoints) -> list[Identity]:
    """The certificates a control plane needs."""
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    addresses = dict.fromkeys([LOOPBACK, KUBERNETES_SERVICE, endpoints.address])
    served = [*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)]
    return [
        Identity("apiserver", "kube-apiserver", names=served),
        Identity("etcd", "etcd", names=["DNS:localhost", f"IP:{LOOPBACK}"]),
        Identity("admin", "admin", organisation="system:masters"),
    ]


class ControlPlane:
    """etcd and one API server in a state folder."""

    def __init__(self, state: State, endpoints: Endpoints, pki: Pki) -> None:
        self.state = state
        self.endpoints = endpoints
        self.pki = pki
        self.processes = Processes(state)
        self.api = Api(endpoints.address, endpoints.api_port, pki)

    def start(self, more_flags: Sequence[str] = (), env: Mapping[str, str] | None = None) -> None:
        """Have both processes run and the API server ready, and write the administrator's kubeconfig.

        Args:
            more_flags: for the API server.
            env: for both.

        Raises Refusal with the end of the log when one of them ends instead.
        """
        programs = go_build.ensure(go_build.KUBE, PROGRAMS)
        for daemon in (self._etcd(programs["etcd"]), self._apiserver(programs["kube-apiserver"], more_flags)):
            self.processes.ensure(replace(daemon, env=env or {}))
        try:
            wait_until("kube-apiserver", self._ready, READY_SECONDS, f"See {self.processes.log('kube-apiserver')}")
        except TimeoutError as error:
            raise Refusal(str(error)) from error
        kubeconfig.write(self.state.kubeconfig, self.endpoints.server, self.pki, "admin")

    def _ready(self) -> bool:
        for name in PROGRAMS:
            self.processes.require(name)
        return self.api.ready()

    def _etcd(self, program: Path) -> Daemon:
        client = f"https://{LOOPBACK}:{self.endpoints.etcd_port}"
        peer = f"http://{LOOPBACK}:{self.endpoints.etcd_peer_port}"
        return Daemon(
            "etcd",
            [
                program,
                "--data-dir",
                self.state.root / "etcd",
                "--listen-client-urls",
                client,
                "--advertise-client-urls",
                client,
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"default={peer}",
                # Clients must show a certificate: otherwise any user of this machine could rewrite the cluster.
                "--client-cert-auth",
                "--trusted-ca-file",
                self.pki.authority,
                "--cert-file",
                self.pki.certificate("etcd"),
                "--key-file",
                self.pki.key("etcd"),
                # Losing the last writes in a power cut does not matter to a cluster of tests.
                "--unsafe-no-fsync",
                "--log-level",
                "warn",
            ],
            inputs=[self.pki.authority],
        )

    def _apiserver(self, program: Path, more_flags: Sequence[str]) -> Daemon:
        folder = self.pki
        return Daemon(
            "kube-apiserver",
            [
                program,
                f"--etcd-servers=https://{LOOPBACK}:{self.endpoints.etcd_port}",
                f"--etcd-cafile={folder.authority}",
                f"--etcd-certfile={folder.certificate('admin')}",
                f"--etcd-keyfile={folder.key('admin')}",
                f"--bind-address={self.endpoints.address}",
                f"--advertise-address={self.endpoints.address}",
                f"--secure-port={self.endpoints.api_port}",
                f"--tls-cert-file={folder.certificate('apiserver')}",
                f"--tls-private-key-file={folder.key('apiserver')}",
                f"--client-ca-file={folder.authority}",
                f"--service-account-key-file={folder.folder / 'service-accounts.pub'}",
                f"--service-account-signing-key-file={folder.folder / 'service-accounts.key'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-cluster-ip-range={SERVICE_NETWORK}",
                "--authorization-mode=Node,RBAC",
                "--allow-privileged=true",
                "--anonymous-auth=false",
                "--enable-admission-plugins=NodeRestriction",
                "--profiling=false",
                *more_flags,
            ],
            inputs=[folder.authority],
        )


def stop(processes: Processes) -> None:
    """End both. The API server goes first, and not in peace: it would drain for a minute if one let it."""
    processes.stop("kube-apiserver", grace_seconds=2)
    processes.stop("etcd", grace_seconds=2)
