"""Manifests of an arm that speaks: the gateway, the model server next to it, and what fetches its weights."""

import json
from dataclasses import replace

import pytest

from learnloop_operator.core.allowed_pods import PodRules
from learnloop_operator.rollout.children.serving_arms import arms
from learnloop_operator.rollout.state.snapshot import Callers, Defaults, Snapshot, resolve

from .test_rendering import SHA, manifest, snapshot

BASE = "cd" * 32
SERVERS = {"vllm": "vllm:1", "llama.cpp": "llama:1"}


def speaking(
    uri: str = "pvc://models/llama", arm: str | None = None, language=None, rules: PodRules | None = None, **spec
) -> Snapshot:
    model = {"uri": arm or f"base://{BASE}", "sha256": SHA if arm else BASE}
    fields = {"model": model, "languageModel": {"base": {"uri": uri, "sha256": BASE}, "contextLength": 4096}, **spec}
    if language:
        fields["serving"] = {"language": language}
    situation = snapshot(fields)
    defaults = Defaults(
        "serving:1",
        "http://data:8080",
        callers=Callers("token", (), ()),
        model_servers=SERVERS,
        pods=PodRules(volume_kinds=("image", "persistentVolumeClaim")),
    )
    return replace(situation, defaults=defaults, desired=resolve(situation.spec, None, rules=rules))


def pod(situation: Snapshot):
    return manifest(situation, "Deployment")["spec"]["template"]["spec"]


def environment(container) -> dict:
    return {item["name"]: item.get("value") for item in container["env"]}


def test_an_arm_that_speaks_has_a_gateway_a_server_and_no_policy_server() -> None:
    situation = speaking()
    template = pod(situation)
    gateway, server = template["containers"]
    assert gateway["command"] == ["python", "-m", "learnloop_gateway"]
    assert gateway["image"] == "serving:1"
    assert gateway["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    env = environment(gateway)
    assert json.loads(env["LEARNLOOP_UPSTREAM"]) == {"kind": "vllm", "url": "http://127.0.0.1:8082", "model": "arm"}
    assert json.loads(env["LEARNLOOP_LANGUAGE_MODEL"])["base"]["sha256"] == BASE
    assert env["LEARNLOOP_TOKENISER_FOLDER"] == "/var/run/models/base"
    assert env["LEARNLOOP_CALLERS"] == "token"
    assert server["image"] == "vllm:1"
    assert "--logprobs-mode=processed_logprobs" in server["args"]
    assert "--max-model-len=4096" in server["args"]
    assert server["securityContext"]["readOnlyRootFilesystem"] is True
    (weights,) = template["initContainers"]
    assert weights["command"] == ["python", "-m", "learnloop_gateway.fetch_weights"]
    claim = next(volume for volume in template["volumes"] if volume["name"] == "learnloop-base-model")
    assert claim["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    for container in (gateway, server, weights):
        mount = next(item for item in container["volumeMounts"] if item["name"] == "learnloop-base-model")
        assert (mount["subPath"], mount["readOnly"]) == ("llama", True)
    assert manifest(situation, "NetworkPolicy")["spec"]["ingress"][0]["ports"] == [{"port": 8080, "protocol": "TCP"}]
    ports = [port["containerPort"] for port in gateway["ports"]]
    assert ports == [8080, 8081], "the model server's is another: they share the pod's address"


def test_by_tls_the_gateway_serves_its_callers_and_the_model_server_its_own_pod_alone() -> None:
    plain = speaking()
    situation = replace(plain, defaults=replace(plain.defaults, tls=(plain.namespace,), data_url="https://data:8080"))
    gateway, server = pod(situation)["containers"]
    env = environment(gateway)
    (mount,) = (item for item in gateway["volumeMounts"] if item["name"] == "learnloop-tls")
    assert env["LEARNLOOP_TLS_KEY"].startswith(mount["mountPath"])
    (volume,) = (item for item in pod(situation)["volumes"] if item["name"] == "learnloop-tls")
    assert volume["secret"]["secretName"] == "learnloop-tls"
    assert "learnloop-tls" not in {item["name"] for item in server["volumeMounts"]}
    other = replace(plain, defaults=replace(plain.defaults, tls=("elsewhere",)))
    assert "LEARNLOOP_TLS_KEY" not in environment(pod(other)["containers"][0])
    assert env["LEARNLOOP_DATA_URL"].startswith("https://")
    assert "/var/run/secrets/learnloop.dev" in {item["mountPath"] for item in gateway["volumeMounts"]}, "the bundle"
    assert {gateway[probe]["httpGet"]["scheme"] for probe in ("startupProbe", "readinessProbe")} == {"HTTPS"}
    assert "--host=127.0.0.1" in server["args"], "what is plain stays inside the pod"


def test_gpus_quantisation_and_tensor_parallelism_pass_to_the_server() -> None:
    server = {
        "quantization": "fp8",
        "tensorParallel": 2,
        "arguments": ["--enforce-eager"],
        "resources": {"limits": {"nvidia.com/gpu": 2}},
        "image": "mine:2",
    }
    container = pod(speaking(language={"server": server}))["containers"][1]
    assert {"--quantization=fp8", "--tensor-parallel-size=2", "--enforce-eager"} <= set(container["args"])
    assert str(container["resources"]["limits"]["nvidia.com/gpu"]) == "2"
    assert container["image"] == "mine:2"


@pytest.mark.parametrize(
    ("arguments", "size"),
    [(["--parallel=8", "--threads=1"], 32768), (["-np", "2"], 8192), (["--parallel", "1", "--no-webui"], 4096)],
)
def test_each_slot_of_llama_cpp_has_the_whole_context(arguments: list[str], size: int) -> None:
    server = {"kind": "llama.cpp", "file": "q.gguf", "arguments": arguments}
    container = pod(speaking(language={"server": server}))["containers"][1]["args"]
    assert container[:2] == ["--host", "127.0.0.1"]
    assert container[container.index("--ctx-size") + 1] == str(size)
    words = [word for argument in arguments for word in argument.split("=")]
    assert container[-len(words) :] == words, "llama.cpp takes a value from the next word alone"
    assert container.count("--parallel") + container.count("-np") == 1


def test_llama_cpp_runs_its_file_and_an_image_is_a_volume() -> None:
    template = pod(
        speaking("oci://registry.example/base@sha256:1", language={"server": {"kind": "llama.cpp", "file": "q.gguf"}})
    )
    server = template["containers"][1]
    assert server["image"] == "llama:1"
    assert "/app/llama-server" in server["command"]
    assert server["args"][4:] == ["--ctx-size", "16384", "--parallel", "4", "--no-kv-unified"], "4,096 for each of four"
    assert environment(template["initContainers"][0])["LEARNLOOP_GGUF_FILE"] == "q.gguf"
    image = {"reference": "registry.example/base@sha256:1", "pullPolicy": "IfNotPresent"}
    assert {"name": "learnloop-base-model", "image": image} in template["volumes"]


def test_a_server_elsewhere_gets_the_key_and_the_adapter_by_its_folder() -> None:
    server = {
        "url": "https://gpu.example",
        "model": "llama",
        "adapterFolder": "/adapters",
        "keyRef": {"name": "gpu", "key": "token"},
    }
    fallback = {"url": "http://ollama:11434", "model": "small"}
    situation = speaking(arm="https://models.example/a", language={"server": server, "fallback": fallback})
    template = pod(situation)
    (gateway,) = template["containers"]
    env = environment(gateway)
    revision = env["LEARNLOOP_REVISION"]
    assert json.loads(env["LEARNLOOP_UPSTREAM"]) == {
        "kind": "vllm",
        "url": "https://gpu.example",
        "model": "llama",
        "key_file": "/var/run/secrets/model-servers.learnloop.dev/server/key",
        "adapter": f"md-{revision}",
        "adapter_folder": f"/adapters/{revision}",
    }
    assert json.loads(env["LEARNLOOP_FALLBACK"])["model"] == "small"
    secret = next(volume for volume in template["volumes"] if volume["name"] == "learnloop-key-server")["secret"]
    assert (secret["secretName"], secret["items"]) == ("gpu", [{"key": "token", "path": "key"}])


def test_another_server_is_another_revision_and_an_arm_keeps_what_it_was_made_with() -> None:
    one, two = speaking(), speaking(language={"server": {"arguments": ["--seed=1"]}})
    assert one.desired.model.revision != two.desired.model.revision
    made = manifest(one, "Deployment")
    live = arms([made], [])
    again = manifest(replace(one, spec=one.spec, arms=live), "Deployment", one.desired.model.revision)
    assert again["spec"]["template"] == made["spec"]["template"]
    assert live[one.desired.model.revision].spoken is not None


def test_what_the_platform_does_not_allow_is_said_before_a_pod_is_made() -> None:
    rules = PodRules(images=("registry.example/",))
    stray = speaking(language={"server": {"image": "evil:1"}}, rules=rules).desired.problem
    assert "spec.serving.language.server.image: 'evil:1'" in stray
    assert "languageModel.base" in speaking("oci://evil/base", rules=PodRules()).desired.problem
    assert "pvc://CLAIM" in speaking("s3://bucket/base").desired.problem


def test_policies_of_numbers_keep_their_revisions() -> None:
    plain = snapshot().desired.model
    assert (
        plain.revision
        == snapshot({"serving": {"language": {"fallback": {"url": "http://x", "model": "y"}}}}).desired.model.revision
    )
