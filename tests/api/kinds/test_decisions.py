"""The author of a decision: the chart's admission policy before a real API server, with two users."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config

from learnloop_api.names import ANNOTATION_AUTHOR, API_VERSION, VERBS, verb_annotation
from learnloop_operator.cli.cluster import KubernetesCluster
from learnloop_operator.cli.signed_order import signed
from learnloop_operator.rollout.state.orders import read

ROOT = Path(__file__).resolve().parents[3]
EVERYTHING = [{"apiGroups": ["learnloop.dev"], "resources": ["*"], "verbs": ["*"]}]
REVISION = "1a2b3c4d"
ARGOCD = "system:serviceaccount:argocd:argocd-server"


@pytest.fixture(scope="module")
def policy(kube) -> Iterator[str]:
    """The policy as the chart renders it, in force."""
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
    command = [helm.stdout.strip(), "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", "decisions"]
    shown = subprocess.run(
        [*command, "--set", "decisions.verifyNames=always", "-s", "templates/decisions/verified-names.yaml"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    objects = list(yaml.safe_load_all(shown.stdout))
    for item in objects:
        kube.apply(item)
    yield objects[0]["metadata"]["name"]
    for item in objects:
        kube.delete(item)


@pytest.fixture
def team(kube, namespace: str, policy: str) -> dict:
    """A ModelDeployment, and two people who may do anything with it."""
    metadata = {"namespace": namespace, "name": "team"}
    kube.create(
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": EVERYTHING}
    )
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "team"},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": n} for n in ("alice", "bob", ARGOCD)
        ],
    }
    kube.create(binding)
    return {
        "apiVersion": API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": "x", "namespace": namespace},
        "spec": {"model": {"uri": "uniform://discrete/2?observations=4"}},
    }


@pytest.fixture
def as_user(api_server: Path, kube) -> Callable:

    def impersonate(user: str):
        api = config.new_client_from_config(str(api_server))
        api.set_default_header("Impersonate-User", user)
        other = type(kube)(api_server)
        other._api = api
        return other

    return impersonate


def in_force(kube, team: dict) -> None:
    """A new policy takes a moment to reach the admission chain: wait until an unsigned value is refused."""
    kube.create(team)
    for attempt in range(300):
        try:
            kube.merge(team, noted("retry", f"{attempt}"))
        except kube.Refused:
            return
        time.sleep(0.1)
    raise AssertionError("the policy never came into force")


def noted(verb: str, value: str | None) -> dict:
    return {"metadata": {"annotations": {verb_annotation(verb): value}}}


def test_nobody_decides_in_anothers_name(kube, team: dict, as_user: Callable) -> None:
    in_force(kube, team)
    alice, bob = as_user("alice"), as_user("bob")
    for verb in VERBS:
        alice.merge(team, noted(verb, f"{REVISION}/2 at 2026-01-31T12:00:00Z by alice"))
        refused = bob.refusal(lambda verb=verb: bob.merge(team, noted(verb, f"{REVISION}/3 by alice")))
        assert "is not signed by who writes it" in refused
        assert f'add " by bob" at the end, or use kubectl learnloop {verb}' in refused
    for forged in (REVISION, f"{REVISION} by alice by bob", f"{REVISION} by bob ", f"{REVISION} by "):
        bob.refusal(lambda forged=forged: bob.merge(team, noted("promote", forged)))
    bob.merge(team, noted("promote", f"{REVISION} by bob"))


def test_a_refusal_has_the_command_that_is_taken(kube, team, as_user):
    in_force(kube, team)
    bob = as_user("bob")
    for value in ("all", "all by alice", "all by alice by bob"):
        refused = bob.refusal(lambda value=value: bob.merge(team, noted("retry", value)))
        command = refused.partition("By hand: kubectl annotate --overwrite ")[2]
        assert command.rstrip(".") == "modeldeployments x 'learnloop.dev/retry=all by bob'"
    annotation = command.partition("=")[2].rstrip("'.")
    bob.merge(team, noted("retry", annotation))
    word = read("retry", annotation)
    assert (word.everything, word.by) == (True, "bob")


def test_a_program_that_acts_for_others_signs_with_its_own_name(kube, team, as_user):
    in_force(kube, team)
    button = as_user(ARGOCD)
    button.merge(team, noted("approve", f"{REVISION}/2 by Argo CD"))
    assert 'add " by Argo CD"' in button.refusal(lambda: button.merge(team, noted("approve", f"{REVISION}/2 by alice")))
    bob = as_user("bob")
    bob.refusal(lambda: bob.merge(team, noted("approve", f"{REVISION}/3 by Argo CD")))


def test_what_is_no_decision_needs_no_name(kube, team: dict, as_user: Callable) -> None:
    in_force(kube, team)
    alice, bob = as_user("alice"), as_user("bob")
    alice.merge(team, noted("pause", f"{REVISION} by alice"))
    bob.merge(team, {"metadata": {"annotations": {"team": "blue"}}, "spec": {"suspend": True}})
    bob.merge(team, noted("pause", None))
    bob.merge(team, {"metadata": {"annotations": None}})
    kube.merge(team, {"status": {"phase": "Healthy"}}, "status")


def test_an_object_is_not_born_with_a_forged_decision(kube, team, as_user):
    in_force(kube, team)
    bob = as_user("bob")
    born = {
        **team,
        "metadata": {**team["metadata"], "name": "y", **noted("promote", f"{REVISION} by alice")["metadata"]},
    }
    assert "is not signed by who writes it" in bob.refusal(lambda: bob.create(born))


def test_the_command_signs_with_the_name_the_api_server_knows(kube, team, api_server, namespace):
    in_force(kube, team)
    cluster = KubernetesCluster(str(api_server), None, namespace)
    review_api = client.AuthenticationV1Api(config.new_client_from_config(str(api_server)))
    name = review_api.create_self_subject_review({}).status.user_info.username
    assert cluster.user() == name
    value = signed(cluster, REVISION)
    cluster.annotate("modeldeployments", "x", {verb_annotation("abort"): value})
    assert kube.get(team)["metadata"]["annotations"][verb_annotation("abort")] == value
    assert value.endswith(f" by {name}")


@pytest.fixture(scope="module")
def four_eyes(kube, policy: str) -> Iterator[str]:
    """The chart's policy for two people, in force next to the other."""
    helm = subprocess.run([sys.executable, ROOT / "hack" / "helm"], capture_output=True, text=True, check=True)
    command = [helm.stdout.strip(), "template", "learnloop", str(ROOT / "charts" / "learnloop"), "-n", "decisions"]
    values = ["--set", "decisions.verifyNames=always,approvals.fourEyes=true"]
    shown = subprocess.run(
        [*command, *values, "-s", "templates/decisions/four-eyes.yaml"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    objects = list(yaml.safe_load_all(shown.stdout))
    for item in objects:
        kube.apply(item)
    yield objects[0]["metadata"]["name"]
    for item in objects:
        kube.delete(item)
    _out_of_force(kube)


def _out_of_force(kube) -> None:
    """Returns when an unsigned spec is taken again: the API server asks a policy for a while after it is deleted."""
    unsigned = {"name": "unsigned", "namespace": "default"}
    spec = {"model": {"uri": "uniform://discrete/2?observations=4"}}
    deadline = time.monotonic() + 60
    while True:
        try:
            kube.create(
                {"apiVersion": API_VERSION, "kind": "ModelDeployment", "metadata": unsigned, "spec": spec}, dry=True
            )
            return
        except kube.Refused:
            assert time.monotonic() < deadline, "the deleted policy is still in force"
            time.sleep(0.2)


def signed_by(name: str | None) -> dict:
    return {"metadata": {"annotations": {ANNOTATION_AUTHOR: name}}}


def test_who_writes_a_spec_signs_it_and_somebody_else_lets_it_on(kube, team, as_user, four_eyes):
    alice, bob = as_user("alice"), as_user("bob")
    in_force(kube, {**team, "metadata": {**team["metadata"], "annotations": {ANNOTATION_AUTHOR: kube_user(kube)}}})
    for attempt in range(300):
        try:
            bob.merge(team, {"spec": {"suspend": attempt % 2 == 0}})
        except kube.Refused:
            break
        time.sleep(0.1)
    assert "who writes a spec signs it: set it to alice" in alice.refusal(
        lambda: alice.merge(team, {"spec": {"suspend": True, "serving": {"replicas": 3}}})
    )
    alice.merge(team, {**signed_by("alice"), "spec": {"serving": {"replicas": 3}}})
    for verb in ("approve", "promote", "skip"):
        refusal = alice.refusal(lambda verb=verb: alice.merge(team, noted(verb, f"{REVISION}/1 by alice")))
        assert "alice wrote this spec; somebody else lets it on" in refusal
        bob.merge(team, noted(verb, f"{REVISION}/1 by bob"))
    alice.merge(team, noted("abort", f"{REVISION} by alice"))
    for name in ("alice", "bob", None):
        if name != "alice":
            alice.refusal(lambda name=name: alice.merge(team, signed_by(name)))
    bob.refusal(lambda: bob.merge(team, {**signed_by("alice"), "spec": {"serving": {"replicas": 4}}}))
    kube.merge(team, {"status": {"phase": "Healthy"}}, "status")


def kube_user(kube) -> str:
    """The name of the tests to the API server."""
    review = client.AuthenticationV1Api(kube._api).create_self_subject_review({})
    return str(review.status.user_info.username)
