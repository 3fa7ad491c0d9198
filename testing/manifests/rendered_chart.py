"""The chart's values that stand for how people install it: every check of what is rendered goes over all of them."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "learnloop"
SYSTEM = "learnloop-system"
S3 = {"bucket": "models", "endpoint": "https://s3.example.com", "credentialsSecret": "bucket"}
DSN = {"embedded": False, "external": {"dsnSecret": {"name": "db"}}}
OWN_NATS = {"embedded": False, "external": {"url": "tls://nats.queues.svc:4222", "credentialsSecret": "nats"}}
OWN_PROMETHEUS = {"embedded": False, "external": {"url": "https://prometheus.monitoring.svc:9090"}}
SECRETS = {part: f"tls-{part.lower()}" for part in ("operator", "dataPlane", "nats", "postgresql", "prometheus")}
EVERY_SWITCH: dict[str, Any] = {
    "operator": {"replicas": 2},
    "dataPlane": {
        "replicas": 2,
        "artifacts": {"s3": S3},
        "sandbox": {"enabled": True},
        "encryption": {"enabled": True},
        "embedder": {"volume": {"claimName": "embedder"}},
        "weaviate": {"url": "https://weaviate.vectors.svc:8080", "keySecret": {"name": "vectors"}},
        "warehouse": {"urlSecret": {"name": "warehouse"}},
        "notifications": {"url": "https://hooks.example.org/x", "keySecret": {"name": "receivers"}},
    },
    "trainer": {"runtime": {"create": True}},
    "approvals": {"fourEyes": True},
    "decisions": {"verifyNames": "always"},
    "authors": {"askRights": "always"},
    "serviceMonitor": {"enabled": True},
    "alerts": {"prometheusRule": True, "embedded": True},
    "tls": {"mutual": True},
}
VALUES: dict[str, dict[str, Any]] = {
    "default": {},
    "everything": EVERY_SWITCH,
    "production": {
        "watchNamespaces": ["team-a", "team-b"],
        "operator": {"replicas": 2},
        "dataPlane": {"replicas": 3, "artifacts": {"s3": S3}},
        "postgresql": DSN,
        "nats": OWN_NATS,
        "prometheus": OWN_PROMETHEUS,
    },
    "highly-available": {
        "operator": {"replicas": 2},
        "dataPlane": {"replicas": 2, "artifacts": {"s3": S3}},
        "nats": {"replicas": 3},
        "prometheus": {"replicas": 2},
        "postgresql": {"cloudNativePG": {"enabled": True}},
        "spread": {"nodes": "require"},
    },
    "backups": {"backup": {"enabled": True}},
    "tls-off": {"tls": {"mode": "off"}},
    "tls-cert-manager": {"tls": {"mode": "cert-manager", "certManager": {"issuerRef": {"name": "platform"}}}},
    "tls-secret": {"tls": {"mode": "secret", "secrets": SECRETS}},
    "local": yaml.safe_load((CHART.parents[1] / "hack" / "cluster" / "values.yaml").read_text()),
}
"""Name → values. docs/how-to/install-for-production.md describes `production`."""


def rendered(helm: Path, values: Mapping[str, Any], *, definitions: bool = False) -> str:
    """The output of `helm template`, for a cluster with the Prometheus operator.

    Raises:
        RuntimeError: with Helm's own words.
    """
    chart_values = {"crds": {"enabled": definitions}} | dict(values)
    command: list[str | Path] = [
        helm,
        "template",
        "learnloop",
        CHART,
        "-n",
        SYSTEM,
        "-a",
        "monitoring.coreos.com/v1",
        "-f",
        "-",
    ]
    done = subprocess.run(
        command,
        input=json.dumps(chart_values, ensure_ascii=False),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout
