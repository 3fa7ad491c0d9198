"""`plan`: the effect of a ModelDeployment's spec, through the operator's own `decide`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from learnloop_api.kinds.model_deployment import ArmStatus, ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.names import API_VERSION
from learnloop_api.wire.routing import routing_config_map
from learnloop_operator.cli.objects import Cluster, CommandError, Object
from learnloop_operator.cli.rollout_order import wanted
from learnloop_operator.cli.text import rows
from learnloop_operator.rollout.decide import decide
from learnloop_operator.rollout.model import rollout_state
from learnloop_operator.rollout.model.profiles import expanded
from learnloop_operator.rollout.model.snapshot import ArmWorld, Defaults, Model, Snapshot


def plan(
    cluster: Cluster,
    filename: Annotated[str, typer.Option("-f", "--filename", help="a ModelDeployment in YAML")],
) -> str:
    """The API server checks the file first, in a dry run with the caller's own rights."""
    body = _read(filename)
    body.setdefault("metadata", {}).setdefault("namespace", cluster.namespace)
    stored = cluster.dry_run("modeldeployments", body)
    return preview(cluster, stored, _spec(filename, stored))


def _read(filename: str) -> Object:
    try:
        documents: list[Any] = [item for item in yaml.safe_load_all(Path(filename).read_text("utf-8")) if item]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(f"--filename {filename!r} cannot be read as YAML: {error}") from error
    kinds = [item.get("kind") if isinstance(item, dict) else type(item).__name__ for item in documents]
    deployments = [item for item in documents if isinstance(item, dict) and item.get("kind") == "ModelDeployment"]
    if len(deployments) != 1:
        raise CommandError(f"--filename {filename!r} holds {kinds}: give it exactly one ModelDeployment")
    if deployments[0].get("apiVersion") != API_VERSION or not (deployments[0].get("metadata") or {}).get("name"):
        raise CommandError(f"--filename {filename!r}: set apiVersion: {API_VERSION} and metadata.name")
    return dict(deployments[0])


def _spec(filename: str, body: Object) -> ModelDeploymentSpec:
    try:
        spec = ModelDeploymentSpec.model_validate(body["spec"])
        return expanded(spec, ModelDeploymentStatus(), datetime.now(UTC))[0]
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(["spec", *map(str, first["loc"])])
        raise CommandError(f"{filename}: {field}: {first['input']!r}: {first['msg']}") from error


def preview(cluster: Cluster, stored: Object, spec: ModelDeploymentSpec) -> str:
    """The revision it asks for, what becomes of it first, and the way up."""
    name, namespace = stored["metadata"]["name"], stored["metadata"]["namespace"]
    live = cluster.find("modeldeployments", name)
    try:
        status = ModelDeploymentStatus.model_validate((live or {}).get("status") or {})
    except ValidationError:
        status = ModelDeploymentStatus()
    spec, profile = expanded(spec, status, datetime.now(UTC))
    desired = wanted(cluster, spec, namespace)
    snapshot = Snapshot(
        now=datetime.now(UTC),
        object={**stored, "metadata": {"uid": "plan", "generation": 1, **stored["metadata"]}},
        spec=spec,
        profile=profile,
        before=status,
        desired=desired,
        arms={arm.revision: _world(arm) for arm in _arms(status)},
        defaults=Defaults("", ""),
    )
    plan = decide(snapshot)
    serving = {arm.revision for arm in _arms(status)}
    fresh = [
        f"{item['metadata']['name']} × {item['spec']['replicas']}"
        for item in plan.apply
        if item["kind"] == "Deployment" and item["metadata"]["name"].rpartition("-")[2] not in serving
    ]
    steps = [
        f"{step.weight} % ({step.min_episodes} episodes{', approval' if step.pause else ''})"
        for step in spec.rollout.steps
    ]
    pairs = [
        ("model", f"{desired.model.revision} {desired.model.uri}" if desired.model else desired.problem),
        ("is", _standing(status, desired.model)),
        ("first", f"{plan.status.get('phase')}: {plan.status.get('verdict')}"),
        ("pods", ", ".join(fresh) or "no new arm"),
        ("steps", " → ".join(steps)),
        ("profile", profile.why if profile else None),
        ("checks", ", ".join(metric.name for metric in spec.analysis.metrics)),
        ("routing", f"{spec.routing.mode}, ConfigMap {routing_config_map(name)}"),
        ("object", f"{namespace}/{name}: {'changes' if live else 'would be new'}; nothing was written"),
    ]
    return rows(pairs)


def _standing(status: ModelDeploymentStatus, model: Model | None) -> str | None:
    if model is None:
        return None
    stable = Model(status.stable.revision, status.stable.uri, status.stable.sha256) if status.stable else None
    pinned = rollout_state.in_the_way(rollout_state.load_pins(status), model, stable)
    if pinned:
        why = rollout_state.sentence(pinned, model)
        return f"blocked since {pinned.at}: {why}; `kubectl learnloop retry` lets it try again"
    for role in ("stable", "canary", "previous"):
        arm = getattr(status, role)
        if arm and arm.revision == model.revision:
            return f"the {role} arm already"
    return "a new revision" if status.stable else "the first model: it serves as soon as its pods can"


def _arms(status: ModelDeploymentStatus) -> list[ArmStatus]:
    return [arm for arm in (status.stable, status.canary, status.previous) if arm]


def _world(arm: ArmStatus) -> ArmWorld:
    model = Model(arm.revision, arm.uri, arm.sha256)
    return ArmWorld(arm.ready_replicas or 0, arm.replicas or 0, message=arm.message or "", model=model)
