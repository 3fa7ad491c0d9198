"""TLS of a MemoryService's own PostgreSQL: the server reads a renewed certificate without a restart."""

from typing import Any

from learnloop_operator.core.manifests import child
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.pod_templates import CERTIFICATE_DIRECTORY, CERTIFICATE_MOUNT, certificate_volume
from learnloop_operator.memory_services.snapshot import MemoryServiceSnapshot

FOLLOW = r"""# follow STOP_SIGNAL COMMAND [ARGUMENT...]: runs COMMAND, and sends it SIGHUP when its certificate changed.
set -u
stop=$1; shift
folder=${FOLLOW_FOLDER:-/run/tls}
"$@" &
server=$!
trap 'kill -s "$stop" "$server"' TERM INT
state() { cat "$folder"/* | cksum; }
(
    trap - TERM INT
    before=$(state)
    while sleep "${FOLLOW_SECONDS:-10}"; do
        now=$(state)
        if [ "$now" != "$before" ]; then
            echo "the certificate has changed: the server reads it again"
            kill -s HUP "$server"
        fi
        before=$now
    done
) &
watcher=$!
wait "$server"
code=$?
# A signal ends the wait before the server has ended.
while kill -0 "$server" 2>/dev/null; do
    wait "$server"
    code=$?
done
kill "$watcher" 2>/dev/null
exit "$code"
"""


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
START = 'exec "$(command -v docker-entrypoint.sh || command -v entrypoint)" "$@"'
"""Our image's entry point is called otherwise than the official one's."""
VERIFIED = f"?sslmode=verify-full&sslrootcert={CERTIFICATE_DIRECTORY}/ca.crt"
"""Query of the memory service's address of it."""


def config(world: MemoryServiceSnapshot, labels: dict[str, str]) -> Manifest:
    """The ConfigMap with who may come how, and the script that runs the server."""
    return child(
        world.object,
        api_version="v1",
        kind="ConfigMap",
        name=world.database_name,
        labels=labels,
        data={"follow": FOLLOW, "pg_hba.conf": HBA},
    )


def command() -> list[str]:
    """Runs the server, which reads a renewed certificate when `follow` tells it to."""
    options = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    return ["/bin/sh", f"{CONFIG_DIRECTORY}/follow", "INT", "sh", "-c", START, "entrypoint", "postgres", *options]


def mounts() -> list[dict[str, Any]]:
    """Mounts of the server."""
    return [CERTIFICATE_MOUNT, {"name": CONFIG_VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True}]


def volumes(world: MemoryServiceSnapshot) -> list[dict[str, Any]]:
    """Volumes of the pod."""
    return [certificate_volume(), {"name": CONFIG_VOLUME, "configMap": {"name": world.database_name}}]
