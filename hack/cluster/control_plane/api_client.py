"""A few reads from the API server, much cheaper than starting kubectl for each."""

import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any

from cluster.control_plane.pki import Pki

TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Api:
    """The administrator's view of one API server."""

    host: str
    port: int
    pki: Pki

    def get(self, path: str) -> tuple[int, bytes]:
        """GET a path. Returns status 0 when the server cannot be reached."""
        try:
            context = ssl.create_default_context(cafile=str(self.pki.authority))
            context.load_cert_chain(self.pki.certificate("admin"), self.pki.key("admin"))
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT_SECONDS, context=context)
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()
        except OSError:
            return 0, b""

    def ready(self) -> bool:
        """Whether the server serves and says that it is ready."""
        return self.get("/readyz")[0] == http.client.OK

    def condition(self, path: str, kind: str) -> bool:
        """Whether the object at `path` exists and its condition `kind` is True for what its spec says now."""
        status, body = self.get(path)
        if status != http.client.OK:
            return False
        stored: dict[str, Any] = json.loads(body)
        state: dict[str, Any] = stored.get("status", {})
        # Nodes have no observed generation: their conditions are always about now.
        if state.get("observedGeneration", stored["metadata"].get("generation")) != stored["metadata"].get(
            "generation"
        ):
            return False
        conditions: list[dict[str, Any]] = state.get("conditions", [])
        return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)
