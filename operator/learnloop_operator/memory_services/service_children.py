"""Manifests of a MemoryService's children: pods with their models, services, Secrets and network."""

from typing import Any
from urllib.parse import urlsplit

from learnloop_api import names
from learnloop_api.kinds.memory_service import MemoryLimit, MemoryServiceSpec, SecretKeyRef, Storage, Weaviate
from learnloop_api.wire.memory_budget import BUDGETS_KEY
from learnloop_operator.core.plan import KubeObject, child
from learnloop_operator.core.pod_templates import (
    CERTIFICATE_DIRECTORY,
    CERTIFICATE_ENV,
    CERTIFICATE_MOUNT,
    Main,
    certificate_volume,
    http_get,
    pod_template,
    scraped,
)
from learnloop_operator.core.workload_network import DNS, Rule, WorkloadNetwork, addresses, pods, policy, ports
from learnloop_operator.memory_services.service_snapshot import DATABASE, PASSWORD_KEY, MemoryServiceSnapshot

CONFIG_DIRECTORY, CONFIG_VOLUME = "/etc/learnloop", "config"
HBA = """\
# The pod itself, by its socket; everybody else by TLS and with a password.
local all all trust
hostssl all all all scram-sha-256
"""
TLS_SETTINGS = {
    "ssl": "on",
    "ssl_cert_file": f"{CERTIFICATE_DIRECTORY}/tls.crt",
    "ssl_key_file": f"{CERTIFICATE_DIRECTORY}/tls.key",
    "ssl_min_protocol_version": "TLSv1.2",
    "ssl_ciphers": "ECDHE+AESGCM:ECDHE+CHACHA20",
    "hba_file": f"{CONFIG_DIRECTORY}/pg_hba.conf",
}
ARGUMENTS = ("postgres", *(word for name, value in TLS_SETTINGS.items() for word in ("-c", f"{name}={value}")))
CURRENT = f'[ ! {CERTIFICATE_DIRECTORY}/tls.crt -nt "$PGDATA/postmaster.pid" ]'
"""Shell test that fails once the certificate is newer than the server's start: the kubelet restarts the server, which
takes a second, long before the old certificate ends. Clients connect again."""
VERIFIED = f"?sslmode=verify-full&sslrootcert={CERTIFICATE_DIRECTORY}/ca.crt"
"""Query of the memory service's address of it."""


def tls_mounts() -> list[dict[str, Any]]:
    return [CERTIFICATE_MOUNT, {"name": CONFIG_VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True}]


def tls_volumes(view: MemoryServiceSnapshot) -> list[dict[str, Any]]:
    return [certificate_volume(), {"name": CONFIG_VOLUME, "configMap": {"name": view.database_name}}]


MODEL_VOLUME, MODEL_DIRECTORY = "learnloop-embedder", "/models/embedder"


def model_environment(spec: MemoryServiceSpec) -> dict[str, Any]:
    env: dict[str, Any] = {} if spec.language == "english" else {"LEARNLOOP_LANGUAGE": spec.language}
    if (embedder := spec.embedder) is not None:
        if embedder.volume is not None:
            path = "/".join(filter(None, (MODEL_DIRECTORY, embedder.volume.path)))
            env["LEARNLOOP_EMBEDDER"] = f"onnx://{path}"
        else:
            env["LEARNLOOP_EMBEDDER"] = f"{embedder.url}#{embedder.model}"
            env["LEARNLOOP_EMBEDDER_DIMENSIONS"] = str(embedder.dimensions)
            env["LEARNLOOP_EMBEDDER_SECONDS"] = str(embedder.timeout_seconds)
            env |= _key("LEARNLOOP_EMBEDDER_KEY", embedder.api_key_secret_ref)
    if (distiller := spec.distiller) is not None:
        env["LEARNLOOP_DISTILLER"] = f"{distiller.url}#{distiller.model}"
        env["LEARNLOOP_DISTILLER_SECONDS"] = str(distiller.timeout_seconds)
        env |= _key("LEARNLOOP_DISTILLER_KEY", distiller.api_key_secret_ref)
    return env


def model_volumes(spec: MemoryServiceSpec) -> list[dict[str, Any]]:
    """The volume with the embedder's files, if there is one."""
    volume = spec.embedder.volume if spec.embedder else None
    if volume is None:
        return []
    if volume.claim_name is not None:
        return [{"name": MODEL_VOLUME, "persistentVolumeClaim": {"claimName": volume.claim_name, "readOnly": True}}]
    return [{"name": MODEL_VOLUME, "image": {"reference": volume.image}}]


def model_mounts(spec: MemoryServiceSpec) -> list[dict[str, Any]]:
    return [{"name": item["name"], "mountPath": MODEL_DIRECTORY, "readOnly": True} for item in model_volumes(spec)]


def _key(name: str, secret: SecretKeyRef | None) -> dict[str, Any]:
    return {} if secret is None else {name: {"secretKeyRef": {"name": secret.name, "key": secret.key}}}


SERVER, POSTGRES = "memory-service", "memory-postgres"
POSTGRES_PORT = 5432
POSTGRES_USER_ID = 999  # the image's own user: initdb wants a name for it
CREDENTIALS_DIRECTORY = "/run/credentials"
ARTIFACTS_DIRECTORY = "/var/lib/learnloop/artifacts"
SERVER_NEEDS = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
POSTGRES_NEEDS = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
"""Resources as in the chart; spec.pod and spec.storage.pod set others."""
BUDGETS_DIRECTORY, BUDGETS_VOLUME = "/etc/learnloop/budgets", "learnloop-budgets"


def _child(
    view: MemoryServiceSnapshot, api_version: str, kind: str, name: str, component: str, **body: Any
) -> KubeObject:
    return child(view.object, api_version, kind, name, view.labels(component), **body)


def credentials(view: MemoryServiceSnapshot) -> KubeObject:
    """The Secret with the password, made once. A rotation writes a line before it."""
    text = {PASSWORD_KEY: view.fresh_password}
    return _child(view, "v1", "Secret", view.credentials_name, POSTGRES, type="Opaque", stringData=text)


def budgets(view: MemoryServiceSnapshot) -> KubeObject:
    """The ConfigMap with the budgets of its agents. Nothing of it is in the pods' template: they read it again."""
    return _child(view, "v1", "ConfigMap", view.budgets_name, SERVER, data={BUDGETS_KEY: view.budgets})


def database(view: MemoryServiceSnapshot, storage: Storage) -> tuple[KubeObject, ...]:
    """Service and StatefulSet of PostgreSQL on one volume, which goes when the MemoryService goes; with TLS its
    configuration before them."""
    service = _service(view, view.database_name, POSTGRES, "postgres", POSTGRES_PORT)
    claim: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.storage_class_name:
        claim["storageClassName"] = storage.storage_class_name
    spec = {
        "replicas": 0 if view.spec.suspend else 1,
        "serviceName": view.database_name,
        "selector": {"matchLabels": view.selector(POSTGRES)},
        # The credentials go with the MemoryService as well: a volume that stayed could never be opened again.
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        "template": _database_pod(view, storage),
    }
    pods = _child(view, "apps/v1", "StatefulSet", view.database_name, POSTGRES, spec=spec)
    hba = {"pg_hba.conf": HBA}
    config = (_child(view, "v1", "ConfigMap", view.database_name, POSTGRES, data=hba),) if view.tls else ()
    return (*config, service, pods)


def account(view: MemoryServiceSnapshot) -> KubeObject:
    """The ServiceAccount of all pods, which may ask the API server nothing."""
    return _child(view, "v1", "ServiceAccount", view.server_name, SERVER, automountServiceAccountToken=False)


def server(view: MemoryServiceSnapshot) -> tuple[KubeObject, KubeObject]:
    """Service and Deployment of the memory service itself."""
    spec = {
        "replicas": view.replicas,
        "selector": {"matchLabels": view.selector(SERVER)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": _server_pod(view),
    }
    service = _service(view, view.server_name, SERVER, "http", names.PORT_DATA)
    return service, _child(view, "apps/v1", "Deployment", view.server_name, SERVER, spec=spec)


def _service(view: MemoryServiceSnapshot, name: str, component: str, port_name: str, port: int) -> KubeObject:
    ports = [{"name": port_name, "port": port, "targetPort": port_name, "protocol": "TCP"}]
    return _child(view, "v1", "Service", name, component, spec={"selector": view.selector(component), "ports": ports})


def _server_pod(view: MemoryServiceSnapshot) -> dict[str, Any]:
    env: dict[str, Any] = {
        **_database(view),
        "LEARNLOOP_ARTIFACTS": f"file://{ARTIFACTS_DIRECTORY}",
        names.ENV_PROBES_PORT: str(names.PORT_PROBES),
        "LEARNLOOP_RETENTION_DAYS": str(view.spec.retention_days),
        "LEARNLOOP_CONSOLIDATE_SECONDS": str(view.spec.consolidate_every_seconds),
        "LEARNLOOP_AGENT_BUDGETS_FILE": f"{BUDGETS_DIRECTORY}/{BUDGETS_KEY}",
    }
    env[names.ENV_AUDIENCE] = names.memory_audience(view.namespace, view.name)
    if view.operator_subject:
        env["LEARNLOOP_OPERATOR_SUBJECT"] = view.operator_subject
    # Its pod may ask the API server nothing: who speaks for its namespace administers it. No TrainingJob reports to it.
    env |= {"LEARNLOOP_ROLES": "off", "LEARNLOOP_RUN_WRITERS": "namespace"}
    env |= _limit(view.spec.agent_budget) | _weaviate(view.spec.weaviate) | model_environment(view.spec)
    if view.tls:
        env |= CERTIFICATE_ENV | {names.ENV_TLS_CA: f"{CERTIFICATE_DIRECTORY}/ca.crt"}
    health: dict[str, Any] = {"httpGet": http_get("/healthz", tls=view.tls, port="metrics")}
    main = Main(
        name="memory",
        image=view.images[0],
        pull_policy=view.pull_policy,
        env=env,
        ports={"http": names.PORT_DATA, "metrics": names.PORT_PROBES},
        probes={
            # Migrations run first, and they wait for PostgreSQL.
            "startupProbe": {**health, "periodSeconds": 2, "failureThreshold": 150},
            "livenessProbe": {**health, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
            "readinessProbe": {
                "httpGet": http_get("/readyz", tls=view.tls, port="metrics"),
                "periodSeconds": 3,
                "timeoutSeconds": 5,
            },
        },
        mounts=[
            {"name": "artifacts", "mountPath": ARTIFACTS_DIRECTORY},
            # The directory: a file mounted by subPath would stay as it was when the pod began.
            {"name": BUDGETS_VOLUME, "mountPath": BUDGETS_DIRECTORY, "readOnly": True},
            *model_mounts(view.spec),
            *([CERTIFICATE_MOUNT] if view.tls else []),
        ],
        resources=SERVER_NEEDS,
    )
    # optional: one that somebody deleted keeps no pod from starting.
    message = {"name": BUDGETS_VOLUME, "configMap": {"name": view.budgets_name, "optional": True}}
    return pod_template(
        main,
        view.spec.pod,
        labels=view.labels(SERVER),
        annotations=scraped(names.PORT_PROBES, tls=view.tls),
        token=False,
        api_access=True,  # fetches the keys that callers' tokens are checked with
        service_account=view.server_name,
        volumes=[
            {"name": "artifacts", "emptyDir": {}},
            message,
            *model_volumes(view.spec),
            *([certificate_volume()] if view.tls else []),
        ],
    )


def _database(view: MemoryServiceSnapshot) -> dict[str, Any]:
    """The environment with address and login of PostgreSQL."""
    if own := view.spec.dsn_secret_ref:
        return {"LEARNLOOP_DSN": {"secretKeyRef": {"name": own.name, "key": own.key}}}
    place = f"{view.database_name}.{view.namespace}.svc:{POSTGRES_PORT}/{DATABASE}"
    return {
        "LEARNLOOP_DSN": f"postgresql://{DATABASE}@{place}{VERIFIED if view.tls else ''}",
        "LEARNLOOP_DATABASE_PASSWORD": {"secretKeyRef": {"name": view.credentials_name, "key": PASSWORD_KEY}},
        "LEARNLOOP_DATABASE_IS_OWN": "true",
    }


def _limit(limit: MemoryLimit | None) -> dict[str, Any]:
    given = {
        "LEARNLOOP_MEMORIES_PER_AGENT": limit.memories if limit else None,
        "LEARNLOOP_MEMORY_BYTES_PER_AGENT": limit.bytes if limit else None,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _weaviate(where: Weaviate | None) -> dict[str, Any]:
    if where is None:
        return {}
    env: dict[str, Any] = {"LEARNLOOP_WEAVIATE_URL": where.url}
    if where.grpc is not None:
        env["LEARNLOOP_WEAVIATE_GRPC"] = where.grpc
    if where.api_key_secret_ref is not None:
        source = {"name": where.api_key_secret_ref.name, "key": where.api_key_secret_ref.key}
        env["LEARNLOOP_WEAVIATE_KEY"] = {"secretKeyRef": source}
    return env


def _database_pod(view: MemoryServiceSnapshot, storage: Storage) -> dict[str, Any]:
    ready = ["pg_isready", "--host=127.0.0.1", f"--username={DATABASE}", f"--dbname={DATABASE}"]
    check: dict[str, Any] = {"exec": {"command": ready}}
    by_tls = ["sh", "-c", f"{CURRENT} && {' '.join(ready)}"]
    live: dict[str, Any] = {"exec": {"command": by_tls if view.tls else ready}}
    main = Main(
        name="postgres",
        image=view.images[1],
        pull_policy=view.pull_policy,
        env={
            "POSTGRES_USER": DATABASE,
            "POSTGRES_DB": DATABASE,
            "POSTGRES_PASSWORD_FILE": f"{CREDENTIALS_DIRECTORY}/{PASSWORD_KEY}",
            "PGDATA": "/var/lib/postgresql/data/pgdata",
        },
        args=ARGUMENTS if view.tls else (),
        ports={"postgres": POSTGRES_PORT},
        probes={
            "startupProbe": {**check, "periodSeconds": 2, "failureThreshold": 90},
            "livenessProbe": {**live, "periodSeconds": 20, "timeoutSeconds": 5, "failureThreshold": 6},
            "readinessProbe": {**check, "periodSeconds": 5, "timeoutSeconds": 5},
        },
        mounts=[
            {"name": "data", "mountPath": "/var/lib/postgresql/data"},
            {"name": "run", "mountPath": "/var/run/postgresql"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "credentials", "mountPath": CREDENTIALS_DIRECTORY, "readOnly": True},
            *(tls_mounts() if view.tls else []),
        ],
        resources=POSTGRES_NEEDS,
    )
    secret = {"secretName": view.credentials_name, "items": [{"key": PASSWORD_KEY, "path": PASSWORD_KEY}]}
    return pod_template(
        main,
        storage.pod,
        labels=view.labels(POSTGRES),
        token=False,
        volumes=[
            *(tls_volumes(view) if view.tls else []),
            {"name": "run", "emptyDir": {}},
            # Parallel queries share memory here; the runtime's default is 64 MiB.
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
            {"name": "credentials", "secret": secret},
        ],
        grace_seconds=60,
        user_id=POSTGRES_USER_ID,
    )


WEAVIATE_GRPC = 50051
"""Default of a Weaviate without a gRPC address."""


def network_policies(view: MemoryServiceSnapshot) -> tuple[KubeObject, ...]:
    """NetworkPolicies of the service and of its PostgreSQL; none where the installation wants none."""
    network = view.network
    if network is None:
        return ()
    callers = [{"podSelector": {}}, *network.peers]
    wanted: list[Rule] = [ports(names.PORT_DATA, peers=callers, key="from")]
    if network.peers:  # a rule without peers would let everybody in
        wanted.append(ports(names.PORT_PROBES, peers=network.peers, key="from"))
    server = policy(
        view.object,
        name=view.server_name,
        component=SERVER,
        selector=view.selector(SERVER),
        ingress=wanted,
        egress=_called(view, network) if network.closed and view.spec.storage is not None else None,
    )
    if view.spec.storage is None:
        return (server,)
    database = policy(
        view.object,
        name=view.database_name,
        component=POSTGRES,
        selector=view.selector(POSTGRES),
        ingress=[ports(POSTGRES_PORT, peers=[pods(view.selector(SERVER))], key="from")],
        egress=[],
    )
    return (server, database)


def _called(view: MemoryServiceSnapshot, network: WorkloadNetwork) -> list[Rule]:
    """A database of somebody else's is at an address in a Secret, which the operator cannot read: nothing is closed."""
    spec, where = view.spec, view.spec.weaviate
    grpc = f"http://{where.grpc or f'{urlsplit(where.url).hostname}:{WEAVIATE_GRPC}'}" if where else None
    return [
        ports(POSTGRES_PORT, peers=[pods(view.selector(POSTGRES))], key="to"),
        # The keys that callers' tokens are checked with.
        {"ports": [{"port": port, "protocol": "TCP"} for port in network.api_server_ports]},
        DNS,
        *addresses(spec.pod, grpc, *(server.url for server in (spec.embedder, spec.distiller, where) if server)),
        *network.to,
    ]
