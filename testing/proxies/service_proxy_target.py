"""A server of a test's own behind a Service, so that the API server's service proxy reaches it."""

import socket
import time
from typing import Any


def own_address() -> str:
    """The address other processes of this machine reach us at: the proxy goes to no loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # no packet is sent
        return str(probe.getsockname()[0])


def behind_service(kube: Any, namespace: str, name: str, address: str, port: int, ready: str) -> str:
    """A Service whose one endpoint is this server: NAMESPACE/NAME:PORT, once the proxy gets an answer at `ready`."""
    metadata, ports = {"name": name, "namespace": namespace}, [{"name": "http", "port": port}]
    kube.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    # The proxy goes to addresses of pods only: one that has this address, on a node without a kubelet.
    kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "name": "default"}})
    spec = {"nodeName": "none", "containers": [{"name": name, "image": "none"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    uid = kube.create(pod)["metadata"]["uid"]
    kube.merge(pod, {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}, "status")
    target = {"kind": "Pod", "name": name, "namespace": namespace, "uid": uid}
    subsets = [{"addresses": [{"ip": address, "targetRef": target}], "ports": ports}]
    kube.create({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets})
    _reached(kube, f"/api/v1/namespaces/{namespace}/services/{name}:http/proxy{ready}")
    return f"{namespace}/{name}:http"


def _reached(kube: Any, path: str) -> None:
    """The API server learns of endpoints by a watch of its own."""
    for _ in range(100):
        try:
            kube.call("GET", path)
            return
        except kube.Refused as error:
            outcome = error
        time.sleep(0.1)
    raise outcome
