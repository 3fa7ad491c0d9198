"""TLS of a MemoryService's own PostgreSQL, which is restarted when its certificate was renewed."""

from typing import Any

from learnloop_operator.core.pod_templates import CERTIFICATE_DIRECTORY, CERTIFICATE_MOUNT, certificate_volume
from learnloop_operator.memory_services.service_snapshot import MemoryServiceSnapshot

CONFIG_DIRECTORY, CONFIG_VOLUME = "/etc/learnloop", "config"
HBA = """\
# The pod itself, by its socket; everybody else by TLS and with a password.
local all all trust
hostssl all all all scram-sha-256
"""
SETTINGS = {
    "ssl": "on",
    "ssl_cert_file": f"{CERTIFICATE_DIRECTORY}/tls.crt",
    "ssl_key_file": f"{CERTIFICATE_DIRECTORY}/tls.key",
    "ssl_min_protocol_version": "TLSv1.2",
    "hba_file": f"{CONFIG_DIRECTORY}/pg_hba.conf",
}
ARGUMENTS = ("postgres", *(word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")))
CURRENT = f'[ ! {CERTIFICATE_DIRECTORY}/tls.crt -nt "$PGDATA/postmaster.pid" ]'
"""Shell test that fails once the certificate is newer than the server's start: the kubelet restarts the server, which
takes a second, long before the old certificate ends. Clients connect again."""
VERIFIED = f"?sslmode=verify-full&sslrootcert={CERTIFICATE_DIRECTORY}/ca.crt"
"""Query of the memory service's address of it."""


def mounts() -> list[dict[str, Any]]:
    return [CERTIFICATE_MOUNT, {"name": CONFIG_VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True}]


def volumes(world: MemoryServiceSnapshot) -> list[dict[str, Any]]:
    return [certificate_volume(), {"name": CONFIG_VOLUME, "configMap": {"name": world.database_name}}]
