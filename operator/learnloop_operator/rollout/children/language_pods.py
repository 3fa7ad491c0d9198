"""The pods of an arm that speaks: the gateway, the model server next to it, and what fetches the arm's weights first.

The server listens for its own pod alone. Whether the arm is an adapter or whole weights is known once they are fetched,
so that the fetching container writes the last of the server's arguments.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from learnloop_api import names
from learnloop_api.kinds.base import PodOptions
from learnloop_api.kinds.language_model import BASE_SCHEME, KeyRef, LanguageServer
from learnloop_api.wire.deployment import gates_account
from learnloop_operator.core.pod_templates import TMP_VOLUME, TOKEN_VOLUME, Main, base_model, restricted, variables
from learnloop_operator.rollout.state.rollout_state import ArmState
from learnloop_operator.rollout.state.snapshot import Snapshot, Spoken

KubeObject = dict[str, Any]
BASE_FOLDER, ARM_FOLDER = "/var/run/models/base", "/var/run/models/arm"
TURNS_FOLDER, KEYS_FOLDER = "/var/lib/learnloop/turns", "/var/run/secrets/model-servers.learnloop.dev"
ARM_VOLUME, TURNS_VOLUME = "learnloop-arm", "learnloop-turns"
SHARED_MEMORY = "learnloop-shared-memory"
SERVED = "arm"
PORT = 8082
"""Of the model server; the gateway has the pod's 8080 and 8081."""
ARGUMENTS = f"{ARM_FOLDER}/arguments"
PROGRAMS: Mapping[str, tuple[str, ...]] = {"vllm": ("vllm", "serve"), "llama.cpp": ("/app/llama-server",)}
PARALLEL = re.compile(r"(?:^| )(?:--parallel|-np)[= ]([1-9][0-9]{0,3})(?: |$)")
SLOTS = 4
"""Answers that llama.cpp gives at the same time where its arguments do not say how many."""
LAUNCH = f'exec "$@" $(cat {ARGUMENTS})'
"""The file that the fetching container writes has no character that a shell reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Extra parts of a pod, and its changed main container."""

    main: Main = field(default_factory=lambda: Main(name="", image="", pull_policy=""))
    volumes: Sequence[KubeObject] = ()
    sidecars: Sequence[KubeObject] = ()
    before: Sequence[KubeObject] = ()


NO_PARTS = Parts()


def language_parts(snapshot: Snapshot, arm: ArmState, spoken: Spoken, options: PodOptions, main: Main) -> Parts:
    """The parts of one arm's pods; `main` is the container of a policy server, whose place the gateway takes."""
    uri = spoken.model.base.uri
    volumes, mounts = base_model(uri, BASE_FOLDER)
    base = BASE_FOLDER if volumes else uri.removeprefix("file://")  # serving.pod.volumes has a folder
    server, fallback = spoken.serving.server, spoken.serving.fallback
    own = server.url is None
    weights = f"{server.adapter_folder}/{arm.revision}" if server.adapter_folder else ARM_FOLDER
    volumes.append({"name": ARM_VOLUME, "emptyDir": {}})
    volumes.append({"name": TURNS_VOLUME, "emptyDir": {"sizeLimit": "2Gi"}})
    mounts = [*mounts, {"name": ARM_VOLUME, "mountPath": ARM_FOLDER}]
    suites = f"{snapshot.namespace}/{gates_account(snapshot.name)}"  # the gates' suites ask a candidate by its name
    env: dict[str, str | Mapping[str, Any]] = {
        **main.env,
        "LEARNLOOP_LANGUAGE_MODEL": json.dumps(spoken.model.to_kube(), sort_keys=True),
        "LEARNLOOP_UPSTREAM": json.dumps(_upstream(snapshot, arm, server, weights), sort_keys=True),
        "LEARNLOOP_TOKENISER_FOLDER": base if server.kind != "openai" else "",
        "LEARNLOOP_TURNS_FOLDER": TURNS_FOLDER,
        "LEARNLOOP_SESSION_IDLE_SECONDS": str(spoken.serving.idle_seconds),
        "LEARNLOOP_PIN_ACCOUNTS": ",".join((*spoken.serving.pin_accounts, suites)),
        "LEARNLOOP_AGENT": agent.name if (agent := snapshot.spec.model.learning_agent_ref) else "",
        "LEARNLOOP_DRAIN_SECONDS": "5",
    }
    gateway_mounts = [*mounts, {"name": TURNS_VOLUME, "mountPath": TURNS_FOLDER}]
    if fallback is not None:
        text: dict[str, Any] = {"kind": "openai", "url": fallback.url, "model": fallback.model}
        if fallback.key_ref:
            text["key_file"] = f"{KEYS_FOLDER}/fallback/key"
        env["LEARNLOOP_FALLBACK"] = json.dumps(text, sort_keys=True)
    for name, ref in (("server", server.key_ref), ("fallback", fallback.key_ref if fallback else None)):
        if ref is not None:
            volumes.append(_key_volume(name, ref))
            folder = f"{KEYS_FOLDER}/{name}"
            gateway_mounts.append({"name": f"learnloop-key-{name}", "mountPath": folder, "readOnly": True})
    gateway = replace(
        main, command=("python", "-m", "learnloop_gateway"), env=env, mounts=[*main.mounts, *gateway_mounts]
    )
    before = []
    if server.kind != "openai":
        more: dict[str, str] = {"LEARNLOOP_SERVER_KIND": server.kind if own else f"{server.kind}-elsewhere"}
        more |= {"LEARNLOOP_BASE_FOLDER": base, "LEARNLOOP_WEIGHTS_FOLDER": weights}
        more |= {"LEARNLOOP_MAX_LORA_RANK": str(server.max_lora_rank), "LEARNLOOP_GGUF_FILE": server.file or ""}
        before.append(_fetching(gateway, options, mounts, more))
    sidecars = []
    if own:
        volumes.append({"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory"}})
        sidecars.append(_server(snapshot, spoken, options, mounts))
    return Parts(main=gateway, volumes=volumes, sidecars=sidecars, before=before)


def _upstream(snapshot: Snapshot, arm: ArmState, server: LanguageServer, weights: str) -> KubeObject:
    if server.url is None:
        return {"kind": server.kind, "url": f"http://127.0.0.1:{PORT}", "model": SERVED}
    text: KubeObject = {"kind": server.kind, "url": server.url, "model": server.model}
    if server.key_ref is not None:
        text["key_file"] = f"{KEYS_FOLDER}/server/key"
    if server.adapter_folder and not arm.model.uri.startswith(BASE_SCHEME):
        text |= {"adapter": f"{snapshot.name}-{arm.revision}", "adapter_folder": weights}
    return text


def _key_volume(name: str, ref: KeyRef) -> KubeObject:
    items = [{"key": ref.key, "path": "key"}]
    return {"name": f"learnloop-key-{name}", "secret": {"secretName": ref.name, "items": items, "defaultMode": 0o440}}


def _fetching(gateway: Main, options: PodOptions, mounts: Sequence[KubeObject], more: Mapping[str, str]) -> KubeObject:
    """The container that verifies the base model and fetches what the arm adds to it."""
    token = {"name": TOKEN_VOLUME, "mountPath": names.TOKEN_DIRECTORY, "readOnly": True}
    result: KubeObject = {
        "name": "weights",
        "image": options.image or gateway.image,
        "imagePullPolicy": options.image_pull_policy or gateway.pull_policy,
        "command": ["python", "-m", "learnloop_gateway.fetch_weights"],
        "env": variables({**gateway.env, **more}),
        "volumeMounts": [{"name": TMP_VOLUME, "mountPath": "/tmp"}, token, *mounts, *(options.volume_mounts or ())],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
    }
    return restricted(result)


def _slots(arguments: Sequence[str], context: int | None) -> list[str]:
    """How llama.cpp divides its context: each conversation under way has all of `context`, and none takes another's."""
    if context is None:
        return []
    given = PARALLEL.findall(" ".join(arguments))
    slots = int(given[-1]) if given else SLOTS
    wanted = [] if given else [f"--parallel={slots}"]
    return [f"--ctx-size={context * slots}", *wanted, "--no-kv-unified"]


def _words(argument: str) -> list[str]:
    """`--name=value` as llama.cpp takes it, which reads a value from the next word alone."""
    name, result, value = argument.partition("=")
    return [name, value] if result and name.startswith("--") else [argument]


def _server(snapshot: Snapshot, spoken: Spoken, options: PodOptions, mounts: Sequence[KubeObject]) -> KubeObject:
    server, context = spoken.serving.server, spoken.model.context_length
    text = ["--host=127.0.0.1", f"--port={PORT}"]
    if server.kind == "vllm":
        text += ["--logprobs-mode=processed_logprobs", "--generation-config=vllm"]
        text += [f"--max-model-len={context}"] if context else []
        text += [f"--quantization={server.quantization}"] if server.quantization else []
        text += [f"--tensor-parallel-size={server.tensor_parallel}"] if server.tensor_parallel else []
    else:
        text += _slots(server.arguments, context)
    arguments = [*text, *server.arguments]
    if server.kind == "llama.cpp":
        arguments = [word for argument in arguments for word in _words(argument)]
    # No probe of its own: it listens for its pod alone, and the gateway says when it answers.
    caches = {"HOME": "/tmp", "XDG_CACHE_HOME": "/tmp/cache", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    shared = {"name": SHARED_MEMORY, "mountPath": "/dev/shm"}
    readable = [mount | {"readOnly": True} for mount in mounts]
    result: KubeObject = {
        "name": "model-server",
        "image": server.image or snapshot.defaults.model_servers.get(server.kind, ""),
        "imagePullPolicy": options.image_pull_policy or snapshot.defaults.image_pull_policy,
        "command": ["sh", "-c", LAUNCH, "launch", *PROGRAMS[server.kind]],
        "args": arguments,
        "env": [{"name": name, "value": value} for name, value in caches.items()],
        "volumeMounts": [{"name": TMP_VOLUME, "mountPath": "/tmp"}, shared, *readable, *(options.volume_mounts or ())],
    }
    if server.resources is not None:
        result["resources"] = server.resources.to_kube()
    return restricted(result)
