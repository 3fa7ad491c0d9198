"""`kubectl learnloop plan -f FILE [--last 7d]`: what a specification would do, now or to the rollouts of the past."""

import argparse
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.names import API_VERSION
from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.errors import CommandError
from learnloop_operator.cli.planning.apply_preview import intent
from learnloop_operator.cli.planning.prometheus_history import PrometheusHistory, at_url
from learnloop_operator.cli.planning.replay_timeline import timelines
from learnloop_operator.rollout.evidence.source import POD_LABEL
from learnloop_operator.rollout.model.profiles import expanded

NAME = "plan"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The file, and how far to look back."""
    parser.add_argument("-f", "--filename", required=True, help="a ModelDeployment in YAML")
    parser.add_argument("--last", type=duration, help="replay the rollouts of this time, e.g. 30m, 6h, 7d")
    parser.add_argument("--prometheus", metavar="URL", help="default: the chart's, through the API server's proxy")
    parser.add_argument(
        "--prometheus-service",
        metavar="NAMESPACE/NAME:PORT",
        default="learnloop-system/learnloop-prometheus:http",
        help="the service behind the proxy (%(default)s)",
    )
    parser.add_argument(
        "--pod-label",
        metavar="LABEL",
        type=lambda text: label(text) if text else "",
        default=POD_LABEL,
        help="the label that has a server's pod: the chart's prometheus.queries.podLabel (%(default)s)",
    )


def duration(text: str) -> timedelta:
    """`90s`, `30m`, `6h`, `7d`, `2w`."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})([smhdw])", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write e.g. 30m, 6h or 7d")
    return timedelta(seconds=int(match[1]) * UNITS[match[2]])


def label(text: str) -> str:
    """A label's name."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise argparse.ArgumentTypeError(f"invalid label {text!r}: write e.g. pod")
    return text


def run(cluster: Cluster, options: argparse.Namespace) -> str:
    """The API server checks the file first, in a dry run with the caller's own rights."""
    body = _read(options.filename)
    body.setdefault("metadata", {}).setdefault("namespace", cluster.namespace)
    stored = cluster.dry_run("modeldeployments", body)
    spec = _spec(options.filename, stored)
    if options.last is None:
        return intent(cluster, stored, spec)
    ask = at_url(options.prometheus) if options.prometheus else cluster.proxy(options.prometheus_service)
    return timelines(cluster, PrometheusHistory(ask), stored, spec, options.last, options.pod_label)


def _read(filename: str) -> Object:
    try:
        documents: list[Any] = [item for item in yaml.safe_load_all(Path(filename).read_text("utf-8")) if item]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(f"--filename {filename!r} cannot be read as YAML: {error}") from error
    kinds = [item.get("kind") if isinstance(item, dict) else type(item).__name__ for item in documents]
    mine = [item for item in documents if isinstance(item, dict) and item.get("kind") == "ModelDeployment"]
    if len(mine) != 1:
        raise CommandError(f"--filename {filename!r} holds {kinds}: give it exactly one ModelDeployment")
    if mine[0].get("apiVersion") != API_VERSION or not (mine[0].get("metadata") or {}).get("name"):
        raise CommandError(f"--filename {filename!r}: set apiVersion: {API_VERSION} and metadata.name")
    return dict(mine[0])


def _spec(filename: str, body: Object) -> ModelDeploymentSpec:
    try:
        spec = ModelDeploymentSpec.model_validate(body["spec"])
        return expanded(spec, ModelDeploymentStatus(), datetime.now(UTC))[0]
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(["spec", *map(str, first["loc"])])
        raise CommandError(f"{filename}: {field}: {first['input']!r}: {first['msg']}") from error
