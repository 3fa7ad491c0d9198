"""Manifests of what a LearningAgent owns: training jobs, its ModelDeployment, its actors and their network."""

import hashlib
import json

from pydantic.alias_generators import to_camel

from learnloop_api import names
from learnloop_api.kinds.task import EnvironmentTask, Task, World as PlayedWorld
from learnloop_api.kinds.training.evaluation import EPISODES_PER_RUN
from learnloop_api.kinds.training_job import TrainingData, TrainingJobSpec, TrainingTemplate
from learnloop_operator.agents import agent_snapshot, apply_training_request, continuous, model_to_serve, triggers
from learnloop_operator.core import plan, pod_templates, workload_network

SEEDS = 2**31


def of_run(uid: str, number: int) -> int:
    """The seed of run `number` of the agent with this UID: from 0 to SEEDS - 1."""
    return (_start(uid, "training") + number) % SEEDS


def seeded(template: TrainingTemplate, uid: str, number: int) -> plan.KubeObject:
    """The template of run `number` with all seeds set; those that the user set stay."""
    evaluation = template.evaluation
    chosen = {
        "seed": _start(uid, "held-out") if evaluation.seed is None else evaluation.seed,
        "first_episode": number * EPISODES_PER_RUN if evaluation.first_episode is None else evaluation.first_episode,
    }
    seed = of_run(uid, number) if template.seed is None else template.seed
    return template.model_copy(update={"seed": seed, "evaluation": evaluation.model_copy(update=chosen)}).to_kube()


def _start(uid: str, purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{purpose} {uid}".encode()).digest()[:4]) % SEEDS


NOTE_TRIGGER = f"{names.GROUP}/trigger"
NOTE_REWARDED = f"{names.GROUP}/rewarded-at-trigger"
NOTE_TRAIN = f"{names.GROUP}/obeys-train"
NOTE_REQUEST = f"{names.GROUP}/obeys-request"
"""Annotation of a TrainingJob with what the status must record of it: dying between the two writes loses nothing."""

NOTE_CODE = f"{names.GROUP}/environment-digest"
"""Annotation of the actors' pods: new code replaces them, as a running process does not import its modules again."""
ACTOR = "actor"
CONDITIONS = frozenset(to_camel(name) for name in PlayedWorld.model_fields)
"""Settings that actors and ranks share besides the environment's name."""
CODE_VOLUME = "learnloop-environment"
CODE_MOUNT = {"name": CODE_VOLUME, "mountPath": names.ENVIRONMENT_DIRECTORY, "readOnly": True}
PLAYS, CONVERSES = "learnloop_sdk.environment_actor", "learnloop_sdk.conversation_actor"
"""Modules that actors run: one acts by numbers, the other speaks."""
ENV_ENDPOINT = "LEARNLOOP_ENDPOINT"
ENV_MEMORY_URL = "LEARNLOOP_MEMORY_URL"


def training_job(
    snapshot: agent_snapshot.AgentSnapshot, number: int, trigger: triggers.Trigger, update: int = 0
) -> plan.KubeObject:
    """Run `number`, or an `update` of it where its rank stays."""
    training, task = snapshot.spec.training, snapshot.spec.task
    assert training is not None
    wish = snapshot.stats.training_wish if snapshot.stats else None
    if wish is not None and trigger.kind == "request":
        training = apply_training_request.narrowed(training, wish).training
    played = task.environment or task.external
    assert played is not None, "checked by the API server"
    conditions = {name: value for name, value in played.to_kube().items() if name in CONDITIONS}
    result = {**conditions, **training.data.to_kube(), **_world(task)}
    if task.environment is not None and task.environment.success_return is not None:
        result["successReturn"] = task.environment.success_return
    if task.language_model is not None:
        result["languageModel"] = task.language_model.to_kube()
    data = TrainingData.model_validate({**result, "learningAgentRef": {"name": snapshot.name}})
    template = seeded(training.template, str(snapshot.object["metadata"]["uid"]), number)
    if training.warm_start and training.template.trained_by in ("own", "trl"):
        template = {"initialPolicy": {"serving": True, "required": False}, **template}
    body = {**template, "data": data.to_kube()}
    if training.continuous is not None:
        body["continuous"] = {**training.continuous.to_kube(), "update": update}
    spec = TrainingJobSpec.model_validate(body)
    run = continuous.warm_run(snapshot) if update else None
    request = granted(snapshot, trigger)
    notes = {
        NOTE_TRIGGER: trigger.kind,
        NOTE_REWARDED: str(snapshot.stats.rewarded) if snapshot.stats else "",
        names.ANNOTATION_TRAJECTORIES: str(snapshot.stats.trajectories) if snapshot.stats else "",
        NOTE_TRAIN: snapshot.annotations.get(names.ANNOTATION_TRAIN, ""),
        NOTE_REQUEST: request or "",
        triggers.NOTE_WITHOUT_GAIN: triggers.note_without_gain(snapshot),
        continuous.NOTE_THAWED: continuous.thawed(snapshot, run) if run else "",
    }
    return plan.child(
        snapshot.object,
        names.API_VERSION,
        "TrainingJob",
        f"{snapshot.name}-{number}",
        plan.standard_labels("training", {names.LABEL_AGENT: snapshot.name}),
        annotations={key: value for key, value in notes.items() if value},
        spec=spec.to_kube(),
    )


def ended_run(snapshot: agent_snapshot.AgentSnapshot, fire: triggers.Trigger | None) -> plan.KubeObject | None:
    """The run whose rank waits, told to end: the next run is none that its updates may be."""
    run, training = continuous.warm_run(snapshot), snapshot.spec.training
    if run is None or not run.rests or snapshot.spec.suspend:
        return None
    live = dict(run.spec or {})
    if training is not None and training.continuous is not None:
        trigger = fire or triggers.Trigger("episodes", "")
        wanted = training_job(snapshot, run.number, trigger, update=run.update or 0)["spec"]
        if TrainingJobSpec.model_validate(wanted) == TrainingJobSpec.model_validate(live):
            return None
    live.pop("continuous")
    labels = plan.standard_labels("training", {names.LABEL_AGENT: snapshot.name})
    return plan.child(
        snapshot.object, names.API_VERSION, "TrainingJob", run.name, labels, annotations=run.notes, spec=live
    )


def granted(snapshot: agent_snapshot.AgentSnapshot, trigger: triggers.Trigger) -> str | None:
    """The training request that this run answers: its own, or one that asks for no other run than this."""
    stats = snapshot.stats
    if stats is None:
        return None
    other = trigger.kind != "request" and stats.training_wish is not None and stats.training_wish.narrows
    return None if other else stats.training_request


def _world(task: Task) -> plan.KubeObject:
    """The environment that is played; where there is none, what is seen and done."""
    environment = model_to_serve.world_of(task)
    if environment is not None:
        return {"environment": environment}
    text = model_to_serve.spaces(task)
    assert text is not None, "checked by decide"
    return {"spaces": text.uri()}


def model_deployment(snapshot: agent_snapshot.AgentSnapshot) -> plan.KubeObject:
    """The ModelDeployment that follows this agent's status.model."""
    spec = snapshot.spec.deployment.template.to_kube()
    spec["model"] = {"learningAgentRef": {"name": snapshot.name}}
    if snapshot.spec.task.language_model is not None:
        spec["languageModel"] = snapshot.spec.task.language_model.to_kube()
    author = snapshot.annotations.get(names.ANNOTATION_AUTHOR)
    return plan.child(
        snapshot.object,
        names.API_VERSION,
        "ModelDeployment",
        snapshot.name,
        plan.standard_labels("model-deployment", {names.LABEL_AGENT: snapshot.name}),
        annotations={names.ANNOTATION_AUTHOR: author} if author else None,
        spec=spec,
    )


def actors(snapshot: agent_snapshot.AgentSnapshot, environment: EnvironmentTask, replicas: int) -> plan.KubeObject:
    """The pods that play the environment against the served policy."""
    marks = plan.standard_labels(ACTOR, {names.LABEL_AGENT: snapshot.name})
    selector = {names.LABEL_AGENT: snapshot.name, names.LABEL_COMPONENT: ACTOR}
    code = environment.environment_config_map
    volumes = [{"name": CODE_VOLUME, "configMap": {"name": code.name}}] if code else []
    template = pod_templates.pod_template(
        _actor(snapshot, environment),
        environment.actors.pod,
        labels=marks,
        annotations={NOTE_CODE: snapshot.environment_code} if snapshot.environment_code else None,
        volumes=volumes,
        memory_audience=snapshot.memory_audience,
    )
    return plan.child(
        snapshot.object,
        "apps/v1",
        "Deployment",
        f"{snapshot.name}-actor",
        marks,
        spec={
            "replicas": replicas,
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector},
            "template": template,
        },
    )


def _actor(snapshot: agent_snapshot.AgentSnapshot, environment: EnvironmentTask) -> pod_templates.Main:
    env: dict[str, str | plan.KubeObject] = {
        names.ENV_NAMESPACE: snapshot.namespace,
        names.ENV_DATA_URL: snapshot.defaults.data_url,
        names.ENV_TOKEN_FILE: names.TOKEN_FILE,
        names.ENV_POD_NAME: {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
        "LEARNLOOP_ACTOR_AGENT": snapshot.name,
        "LEARNLOOP_ACTOR_ENVIRONMENT": environment.name,
        "LEARNLOOP_ACTOR_CONCURRENCY": str(environment.actors.concurrency),
        "LEARNLOOP_ACTOR_RECALL": str(snapshot.spec.memory.recall),
    }
    if snapshot.memory_url:
        # Memories live in the namespace's own service; experience always goes to the hub, where it is rewarded.
        env |= {ENV_MEMORY_URL: snapshot.memory_url, names.ENV_MEMORY_TOKEN_FILE: names.MEMORY_TOKEN_FILE}
    if environment.environment_config_map:
        env[names.ENV_ENVIRONMENT_DIRECTORY] = names.ENVIRONMENT_DIRECTORY
    if environment.level is not None:
        env["LEARNLOOP_ACTOR_LEVEL"] = environment.level
    if environment.randomise:
        ranges = [[item.parameter, item.low, item.high] for item in environment.randomise]
        env["LEARNLOOP_ACTOR_RANDOMISE"] = json.dumps(ranges)
    if environment.credit is not None:
        env["LEARNLOOP_ACTOR_CREDIT"] = environment.credit
    if environment.max_steps_per_episode is not None:
        env["LEARNLOOP_ACTOR_MAX_STEPS_PER_EPISODE"] = str(environment.max_steps_per_episode)
    if environment.success_return is not None:
        env["LEARNLOOP_ACTOR_SUCCESS_RETURN"] = f"{environment.success_return:g}"
    if environment.actors.max_steps_per_second is not None:
        env["LEARNLOOP_ACTOR_MAX_STEPS_PER_SECOND"] = str(environment.actors.max_steps_per_second)
    # Behind a Gateway only the user knows the address; what the pod options say is left alone.
    if not any(item.name == ENV_ENDPOINT for item in environment.actors.pod.env or ()):
        gateway = snapshot.spec.deployment.template.routing.mode == "gateway"
        scheme = "https" if snapshot.namespace in snapshot.defaults.tls and not gateway else "http"
        env[ENV_ENDPOINT] = f"{scheme}://{snapshot.name}.{snapshot.namespace}.svc:{names.PORT_SERVING}"
    return pod_templates.Main(
        name=ACTOR,
        image=snapshot.defaults.image,
        pull_policy=snapshot.defaults.image_pull_policy,
        env=env,
        command=["python", "-m", CONVERSES if snapshot.spec.task.language_model is not None else PLAYS],
        mounts=[CODE_MOUNT] if environment.environment_config_map else [],
        resources={"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
    )


def actor_network(snapshot: agent_snapshot.AgentSnapshot, environment: EnvironmentTask) -> tuple[plan.KubeObject, ...]:
    """The NetworkPolicy of the actors; none where the installation wants none.

    They ask the policy servers of the ModelDeployment, and call the data plane, the MemoryServices of their namespace
    and the DNS. They also call the addresses in their pod options, such as `LEARNLOOP_ENDPOINT` of a gateway.
    """
    network = snapshot.defaults.network
    if network is None:
        return ()
    servers = workload_network.pods({names.LABEL_DEPLOYMENT: snapshot.name})
    memory = workload_network.pods({names.LABEL_COMPONENT: "memory-service"})
    out = [
        workload_network.ports(names.PORT_SERVING, peers=[servers], key="to"),
        *([workload_network.ports(names.PORT_DATA, peers=[memory], key="to")] if snapshot.memory_url else []),
        workload_network.data_plane(snapshot.defaults.data_url),
        workload_network.DNS,
        *workload_network.addresses(environment.actors.pod),
        *network.to,
    ]
    manifest = workload_network.policy(
        snapshot.object,
        name=f"{snapshot.name}-actor",
        component=ACTOR,
        selector={names.LABEL_AGENT: snapshot.name, names.LABEL_COMPONENT: ACTOR},
        ingress=[],
        egress=out if network.closed else None,
    )
    return (manifest,)
