"""The rendered chart and the examples before a real API server: stored, admitted, and enough rights to work with."""

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from learnloop_operator import bootstrap
from learnloop_operator.kube.errors import Forbidden
from learnloop_operator.kube.http_transport import KubeHttp
from testing.operators.api_access import from_kubeconfig

ROOT = Path(__file__).resolve().parents[3]
SYSTEM = "learnloop-system"
# Kinds of other projects, which this API server does not know.
FLUX = ("source.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "kustomize.toolkit.fluxcd.io/")
FOREIGN = ("gateway.networking.k8s.io/", "argoproj.io/", *FLUX)
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))

Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory, helm: Path) -> Path:
    """The chart with its default values, as one file."""
    command = [str(helm), "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", SYSTEM]
    file = tmp_path_factory.mktemp("chart") / "rendered.yaml"
    done = subprocess.run([*command, "--no-hooks"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    file.write_text(done.stdout)
    return file


@pytest.fixture(scope="module")
def install(kube, kubectl: Kubectl, rendered: Path) -> Callable[[], dict[str, str]]:
    """Applies the chart and returns the content of everything it owns."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": labels}})
    objects = [item for item in yaml.load_all(rendered.read_text(), yaml.CSafeLoader) if item]

    def apply() -> dict[str, str]:
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(rendered))
        return {f"{item['kind']}/{item['metadata']['name']}": content(kube.get(item)) for item in objects}

    return apply


def content(item: dict) -> str:
    """All of an object but its version: the API server itself rewrites a new volume claim once, without a change."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
    return json.dumps({**item, "metadata": metadata}, sort_keys=True)


@pytest.fixture
async def as_operator(install: Callable[[], object], api_server: Path, kubectl: Kubectl):
    """The API server as the operator's own service account sees it."""
    install()
    configuration = from_kubeconfig(api_server)
    configuration.cert_file = configuration.key_file = None
    token = kubectl("create", "token", "learnloop-operator", "-n", SYSTEM).strip()
    configuration.api_key["BearerToken"] = f"Bearer {token}"
    http = KubeHttp(configuration)
    yield http
    await http.close()


def pods_of(items: list[dict], namespace: str) -> Iterator[dict]:
    """A pod for each pod template, to be shown to pod security admission."""
    for item in items:
        if item["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = item["spec"]["template"]
            # What the admission of service accounts would fill in; here it is off, for want of its controller.
            spec = {"serviceAccountName": "default", **template["spec"]}
            claims = [claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])]
            claimed = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
            spec["volumes"] = [*spec.get("volumes", []), *claimed]
            name = item["metadata"]["name"]
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**template.get("metadata", {}), "name": name, "namespace": namespace},
                "spec": spec,
            }


def test_every_pod_of_the_chart_is_admitted_where_only_restricted_ones_are(kube, install, rendered):
    install()
    pods = list(pods_of([item for item in yaml.load_all(rendered.read_text(), yaml.CSafeLoader) if item], SYSTEM))
    assert len(pods) == 5
    for pod in pods:
        kube.create(pod, dry=True)


async def test_passwords_are_made_once_and_survive_the_next_apply(as_operator, kube, install):
    secret = {"apiVersion": "v1", "kind": "Secret"}
    secret["metadata"] = {"name": "learnloop-credentials", "namespace": SYSTEM}
    assert await bootstrap.fill(as_operator, SYSTEM, "learnloop-credentials") is True
    made = kube.get(secret)["data"]
    assert set(made) == set(bootstrap.KEYS)
    assert base64.b64decode(made["encryption-keys"]).startswith(b"k1 ")
    assert await bootstrap.fill(as_operator, SYSTEM, "learnloop-credentials") is False
    install()
    assert kube.get(secret)["data"] == made


async def test_a_missing_password_is_added_beside_the_old_one(as_operator, kube, install):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "learnloop-credentials", "namespace": SYSTEM}}
    old = base64.b64encode(b"the-old-one").decode()
    kube.merge(secret, {"data": {"postgres-password": old, "nats-password": None}})
    assert await bootstrap.fill(as_operator, SYSTEM, "learnloop-credentials") is True
    after = kube.get(secret)["data"]
    assert after["postgres-password"] == old
    assert len(base64.b64decode(after["nats-password"])) == bootstrap.LENGTH


async def test_the_operator_may_hold_its_own_lease_only(as_operator: KubeHttp) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
    lease = await as_operator.request("GET", f"{leases}/learnloop-operator")
    await as_operator.request(
        "PUT", f"{leases}/learnloop-operator", body={**lease, "spec": {"holderIdentity": "operator-0"}}
    )
    held = await as_operator.request("GET", f"{leases}/learnloop-operator")
    assert held["spec"]["holderIdentity"] == "operator-0"
    with pytest.raises(Forbidden, match="cannot get resource"):
        await as_operator.request("GET", f"{leases}/somebody-elses")


async def test_the_operator_may_let_a_policy_server_watch_its_table_and_no_more(as_operator, namespace):
    def role(name: str, resource: str) -> dict:
        rule = {"apiGroups": [""], "resources": [resource], "resourceNames": ["x"], "verbs": ["get", "watch"]}
        metadata = {"name": name, "namespace": namespace}
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": [rule],
        }  # fmt: skip

    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles"
    await as_operator.request("POST", path, body=role("table", "configmaps"))
    with pytest.raises(Forbidden, match="attempting to grant RBAC permissions not currently held"):
        await as_operator.request("POST", path, body=role("secrets", "secrets"))


async def test_the_operator_reads_no_secret_lists_and_writes_no_spec(as_operator: KubeHttp, namespace: str) -> None:
    for verb, name in (("list", ""), ("get", "/payroll")):
        with pytest.raises(Forbidden, match=f"cannot {verb} resource"):
            await as_operator.request("GET", f"/api/v1/namespaces/{namespace}/secrets{name}")
    agents = f"/apis/learnloop.dev/v1alpha1/namespaces/{namespace}/learningagents"
    with pytest.raises(Forbidden, match="cannot create resource"):
        await as_operator.request("POST", agents, body={"metadata": {"name": "x"}})
    patch = {"spec": {"suspend": True}}
    with pytest.raises(Forbidden, match="cannot patch resource"):
        await as_operator.request("PATCH", f"{agents}/x", body=patch, content_type="application/merge-patch+json")


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT / "examples")))
def test_an_example_is_accepted_as_it_stands(kube, namespace: str, file: Path) -> None:
    words = {"MODEL_URI": f"learnloop://{namespace}/{'a' * 64}", "MODEL_SHA256": "a" * 64, "TRAINER_IMAGE": "trainer:1"}
    words |= {"KIND_OF_IT": "jailbroken", "OPTION": "--tells"}
    text = file.read_text()
    for word, value in words.items():
        text = text.replace(word, value)
    items = [item for item in yaml.load_all(text, yaml.CSafeLoader) if not item["apiVersion"].startswith(FOREIGN)]
    for item in items:
        if item["kind"] != "Namespace":
            item["metadata"]["namespace"] = namespace
        kube.apply(item, dry=True)
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    kube.merge({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, restricted)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
    kube.apply(account)
    for pod in pods_of(items, namespace):
        kube.create(pod, dry=True)
