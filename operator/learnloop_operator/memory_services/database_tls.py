"""TLS of a MemoryService's own PostgreSQL: its certificate, and the container that renews it.

PostgreSQL's image has none of our code. So a container of the memory image asks the data plane for the certificate, as
policy servers do, and writes it into a shared folder in memory; the token is in that container alone.
"""

from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_operator.core.ownership import child
from learnloop_operator.core.plan import Manifest
from learnloop_operator.core.pod_templates import Main, container, service_names, token_volume
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


CERTIFICATE = "certificate"
CERTIFICATE_DIRECTORY, CONFIG_DIRECTORY = "/run/tls", "/etc/learnloop"
CERTIFICATE_VOLUME, CONFIG_VOLUME = "tls", "config"
NEEDS = {"requests": {"cpu": "5m", "memory": "48Mi"}, "limits": {"memory": "128Mi"}}
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
VERIFIED = f"?sslmode=verify-full&sslrootcert={names.CA_FILE}"
"""What the memory service's address ends with."""


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
    """Of the server."""
    return [
        {"name": CERTIFICATE_VOLUME, "mountPath": CERTIFICATE_DIRECTORY, "readOnly": True},
        {"name": CONFIG_VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True},
    ]


def volumes(world: MemoryServiceSnapshot) -> list[dict[str, Any]]:
    """Of the pod. The key never lies on a disk."""
    return [
        {"name": CERTIFICATE_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": CONFIG_VOLUME, "configMap": {"name": world.database_name}},
        token_volume(),
    ]


def before(world: MemoryServiceSnapshot) -> dict[str, Any]:
    """The container that gets the first certificate: the server starts with one, or not at all."""
    return _asking(world, CERTIFICATE, "--once")


def beside(world: MemoryServiceSnapshot) -> dict[str, Any]:
    """The container that renews it."""
    return _asking(world, f"{CERTIFICATE}-renewal")


def _asking(world: MemoryServiceSnapshot, name: str, *arguments: str) -> dict[str, Any]:
    main = Main(
        name=name,
        image=world.images[0],
        pull_policy=world.pull_policy,
        command=("python", "-m", "learnloop_common.tls.certificate_files", CERTIFICATE_DIRECTORY, *arguments),
        env={
            names.ENV_DATA_URL: world.data_url,
            names.ENV_TOKEN_FILE: names.TOKEN_FILE,
            names.ENV_TLS_NAMES: service_names(world.namespace, world.database_name),
        },
        mounts=[{"name": CERTIFICATE_VOLUME, "mountPath": CERTIFICATE_DIRECTORY}],
        resources=NEEDS,
    )
    return container(main, PodOptions(), token=True)
