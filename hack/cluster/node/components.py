"""The processes of the one node and the controllers that serve it."""

import os
from dataclasses import dataclass
from pathlib import Path

from cluster.addresses import BRIDGE_ADDRESS, NODE, POD_NETWORK
from cluster.control_plane import kubeconfig
from cluster.control_plane.pki import Identity, Pki
from cluster.processes import Daemon
from cluster.state_folder import State

CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KUBELET = "kubelet"
PROXY = "kube-proxy"
PROGRAMS = (CONTROLLER_MANAGER, SCHEDULER, KUBELET, PROXY)
LOOPBACK = "127.0.0.1"
# No pod asks for addresses on the loopback, so health and metrics of the controllers stay off the pod network.
PORTS = {
    KUBELET: 10250,
    "kube-proxy health": 10256,
    "kube-proxy metrics": 10249,
    CONTROLLER_MANAGER: 10257,
    SCHEDULER: 10259,
}

IDENTITIES = (
    Identity(KUBELET, f"system:node:{NODE}", "system:nodes", [f"DNS:{NODE}", f"IP:{LOOPBACK}", f"IP:{BRIDGE_ADDRESS}"]),
    Identity(CONTROLLER_MANAGER, "system:kube-controller-manager"),
    Identity(SCHEDULER, "system:kube-scheduler"),
    Identity(PROXY, "system:kube-proxy"),
)

KUBELET_CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {authority}}}
authorization: {{mode: Webhook}}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
# A development machine's disk is full of other things; evicting the tests for it would not help.
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
containerRuntimeEndpoint: unix://{socket}
clusterDNS: [{address}]
clusterDomain: cluster.local
resolvConf: {resolver}
tlsCertFile: {certificate}
tlsPrivateKeyFile: {key}
podLogsDir: {logs}
volumePluginDir: {plugins}
healthzBindAddress: {loopback}
healthzPort: 0
# kube-proxy brings the chains it needs; the kubelet's own would only be left behind.
makeIPTablesUtilChains: false
maxPods: 250
# How soon a pod sees a Secret that was written after its start; controllers of training wait for their certificates.
syncFrequency: 10s
serializeImagePulls: false
shutdownGracePeriod: 0s
"""


@dataclass(frozen=True)
class Node:
    """Describes the daemons of the node in one state folder."""

    state: State
    pki: Pki
    programs: dict[str, Path]
    server: str

    def controllers(self) -> list[Daemon]:
        """The components that need only the API server."""
        return [self._controller_manager(), self._scheduler()]

    def agents(self) -> list[Daemon]:
        """The components that make this machine a node; containerd must answer first, or the kubelet ends."""
        return [self._kubelet(), self._proxy()]

    def _kubeconfig(self, user: str) -> Path:
        return kubeconfig.write(self.state.config / f"{user}.kubeconfig", self.server, self.pki, user)

    def _controller_manager(self) -> Daemon:
        config = self._kubeconfig(CONTROLLER_MANAGER)
        return Daemon(
            CONTROLLER_MANAGER,
            [
                self.programs[CONTROLLER_MANAGER],
                f"--kubeconfig={config}",
                f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}",
                f"--bind-address={LOOPBACK}",
                f"--service-account-private-key-file={self.pki.folder / 'service-accounts.key'}",
                f"--root-ca-file={self.pki.authority}",
                "--use-service-account-credentials",
                f"--cluster-cidr={POD_NETWORK}",
                "--leader-elect=false",
                "--profiling=false",
            ],
            inputs=[config],
        )

    def _scheduler(self) -> Daemon:
        config = self._kubeconfig(SCHEDULER)
        return Daemon(
            SCHEDULER,
            [
                self.programs[SCHEDULER],
                f"--kubeconfig={config}",
                f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}",
                f"--bind-address={LOOPBACK}",
                "--leader-elect=false",
                "--profiling=false",
            ],
            inputs=[config],
        )

    def _kubelet(self) -> Daemon:
        credentials = self._kubeconfig(KUBELET)
        resolver = self.state.config / "resolv.conf"
        # Empty: pods must not inherit the search domains and name servers of the machine they happen to run on.
        resolver.write_text("")
        config = self.state.config / "kubelet.yaml"
        config.write_text(
            KUBELET_CONFIG.format(
                address=BRIDGE_ADDRESS,
                loopback=LOOPBACK,
                authority=self.pki.authority,
                socket=self.state.containerd_socket,
                resolver=resolver,
                certificate=self.pki.certificate(KUBELET),
                key=self.pki.key(KUBELET),
                logs=self.state.root / "pod-logs",
                plugins=self.state.root / "volume-plugins",
            )
        )
        return Daemon(
            KUBELET,
            [
                self.programs[KUBELET],
                f"--config={config}",
                f"--kubeconfig={credentials}",
                f"--hostname-override={NODE}",
                f"--node-ip={BRIDGE_ADDRESS}",
                f"--root-dir={self.state.root / 'kubelet'}",
            ],
            inputs=[config, credentials],
            env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        )

    def _proxy(self) -> Daemon:
        config = self._kubeconfig(PROXY)
        return Daemon(
            PROXY,
            [
                self.programs[PROXY],
                f"--kubeconfig={config}",
                "--proxy-mode=iptables",
                f"--cluster-cidr={POD_NETWORK}",
                f"--hostname-override={NODE}",
                f"--healthz-bind-address={LOOPBACK}:{PORTS['kube-proxy health']}",
                f"--metrics-bind-address={LOOPBACK}:{PORTS['kube-proxy metrics']}",
                f"--nodeport-addresses={BRIDGE_ADDRESS}/32",
                # The kernel's own limits stay as they are: they belong to the machine, not to this cluster.
                "--conntrack-max-per-core=0",
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
            ],
            inputs=[config],
            env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        )
