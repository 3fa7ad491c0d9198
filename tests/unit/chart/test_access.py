"""Rights: the operator's rules against what its code asks for, cluster-wide and in namespaces."""

import re
from collections import defaultdict
from collections.abc import Iterable

import pytest

from learnloop_operator.kube import kinds
from learnloop_operator.kube.kinds import ResourceKind
from learnloop_operator.reconcile.kopf_handlers import CHILD_SELECTORS

from .conftest import ROOT, Object, Release, Render

Rights = dict[tuple[str, str], set[str]]
CODE = ROOT / "operator" / "learnloop_operator"
READ, WRITE = {"get", "list", "watch"}, {"create", "patch", "delete"}
APPLIED = (
    kinds.TRAINING_JOB, kinds.MODEL_DEPLOYMENT, *kinds.GANG_KINDS, kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.SERVICE,
    kinds.CONFIG_MAP, kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING, kinds.NETWORK_POLICY, kinds.HTTP_ROUTE,
)  # fmt: skip


def rights(rules: Iterable[Object]) -> Rights:
    """The verbs that the rules allow on objects of any name."""
    granted: Rights = defaultdict(set)
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                if "resourceNames" not in rule:
                    granted[group, resource] |= set(rule["verbs"])
    return granted


@pytest.fixture(scope="module")
def cluster_wide(render: Render) -> Release:
    return render()


@pytest.fixture(scope="module")
def namespaced(render: Render) -> Release:
    return render({"watchNamespaces": ["team-a", "team-b"]})


@pytest.fixture(scope="module")
def operator(cluster_wide: Release) -> Rights:
    return rights(cluster_wide.one("ClusterRole", "learnloop-system-learnloop-operator")["rules"])


def named(pattern: str) -> set[ResourceKind]:
    """Kinds that the operator's code names in a call like this."""
    table = {name: value for name, value in vars(kinds).items() if isinstance(value, ResourceKind)}
    calls = (match for path in CODE.rglob("*.py") for match in re.finditer(pattern, path.read_text()))
    return {table[match["kind"]] for match in calls if match["kind"] in table}


def test_what_is_watched_may_be_listed_and_watched(operator: Rights) -> None:
    for kind in (*kinds.OWN_KINDS, *CHILD_SELECTORS):
        assert operator[kind.group, kind.plural] >= {"list", "watch"}, kind.plural


def test_what_the_code_reads_may_be_read(operator: Rights) -> None:
    listed = named(r"\.list\(\s*(?P<kind>[A-Z_]+)\b")
    read = named(r"\.(get|find)\(\s*(?P<kind>[A-Z_]+)\b") - {kinds.LEASE}
    assert listed
    assert read
    for kind, verb in [*((kind, "list") for kind in listed), *((kind, "get") for kind in read)]:
        assert verb in operator[kind.group, kind.plural], f"{verb} {kind.plural}"


@pytest.mark.parametrize("kind", APPLIED, ids=lambda kind: kind.plural)
def test_what_is_applied_may_be_read_written_and_removed(operator: Rights, kind: ResourceKind) -> None:
    assert operator[kind.group, kind.plural] >= {"get", *WRITE}


def test_the_user_owns_the_spec(operator: Rights) -> None:
    for kind in kinds.OWN_KINDS:
        assert operator[kind.group, f"{kind.plural}/status"] == {"patch"}
        if kind not in APPLIED:
            assert operator[kind.group, kind.plural] == READ, kind.plural


def test_nothing_is_allowed_that_the_table_does_not_list(operator: Rights) -> None:
    listed = {(kind.group, kind.plural) for kind in kinds.ALL_KINDS}
    listed |= {(kind.group, f"{kind.plural}/{part}") for kind in kinds.OWN_KINDS for part in ("status", "finalizers")}
    assert set(operator) - listed == {("apiextensions.k8s.io", "customresourcedefinitions")}
    assert operator["apiextensions.k8s.io", "customresourcedefinitions"] == READ
    assert operator["", "secrets"] == {"create"}, "no Secret is read"
    assert operator["", "pods"] == READ
    assert ("", "persistentvolumeclaims") not in operator
    assert operator["events.k8s.io", "events"] == {"list", "create"}
    assert ("coordination.k8s.io", "leases") not in operator


def test_no_rule_has_a_wildcard(cluster_wide: Release, namespaced: Release) -> None:
    for release in (cluster_wide, namespaced):
        for role in release.of("Role", "ClusterRole"):
            for rule in role["rules"]:
                assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
                assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_a_namespaced_install_has_the_same_rules_and_nothing_cluster_wide(cluster_wide, namespaced):
    assert not namespaced.of("ClusterRole", "ClusterRoleBinding")
    everywhere = cluster_wide.one("ClusterRole", "learnloop-system-learnloop-operator")["rules"]
    for namespace in ("team-a", "team-b"):
        role = next(
            item
            for item in namespaced.of("Role")
            if item["metadata"]["namespace"] == namespace and item["metadata"]["name"] == "learnloop-operator"
        )
        assert role["rules"] == [rule for rule in everywhere if rule["apiGroups"] != ["apiextensions.k8s.io"]]
    operator = [item for item in namespaced.of("Role") if item["metadata"]["name"] == "learnloop-operator"]
    assert {item["metadata"]["namespace"] for item in operator} == {"team-a", "team-b"}
    assert namespaced.environment("learnloop-operator")["LEARNLOOP_WATCH_NAMESPACE"] == "team-a,team-b"


def test_in_its_own_namespace_it_may_hold_its_lease_and_fill_its_secret(cluster_wide: Release) -> None:
    rules = cluster_wide.one("Role", "learnloop-operator-own")["rules"]
    # Those with certificates: test_tls.py.
    assert [rule for rule in rules if not any("-tls-" in name for name in rule.get("resourceNames", []))] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["learnloop-operator"],
            "verbs": ["get", "update"],
        },
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["learnloop-credentials"],
            "verbs": ["get", "patch"],
        },
    ]


def test_every_binding_names_a_role_and_an_account_that_exist(cluster_wide: Release, namespaced: Release) -> None:
    for release in (cluster_wide, namespaced):
        accounts = {item["metadata"]["name"] for item in release.of("ServiceAccount")}
        roles = {
            (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
            for item in release.of("Role", "ClusterRole")
        }
        for binding in release.of("RoleBinding", "ClusterRoleBinding"):
            reference = binding["roleRef"]
            assert (reference["kind"], binding["metadata"].get("namespace"), reference["name"]) in roles
            for subject in binding["subjects"]:
                assert subject["name"] in accounts
                assert subject["namespace"] == "learnloop-system"


def test_prometheus_sees_pods_and_nothing_else(cluster_wide: Release, namespaced: Release) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    assert cluster_wide.one("ClusterRole", "learnloop-system-learnloop-prometheus")["rules"] == rules
    roles = [item for item in namespaced.of("Role") if item["metadata"]["name"] == "learnloop-prometheus"]
    assert {item["metadata"]["namespace"] for item in roles} == {"learnloop-system", "team-a", "team-b"}
    assert all(item["rules"] == rules for item in roles)


def test_the_data_plane_may_ask_who_somebody_is_and_nothing_else_until_it_is_asked_for(render: Render) -> None:
    account = "learnloop-data"

    def granted(release: Release) -> list[Object]:
        bindings = release.of("RoleBinding", "ClusterRoleBinding")
        own = [item for item in bindings if item["subjects"][0]["name"] == account]
        roles = {item["metadata"]["name"]: item for item in release.of("Role", "ClusterRole")}
        named = [item["roleRef"]["name"] for item in own]
        return [roles[name]["rules"] if name in roles else name for name in named]

    [asks] = granted(render())
    assert rights(asks) == {
        ("learnloop.dev", "trainingjobs"): {"get"},
        ("", "pods"): {"get"},
        ("kubeflow.org", "pytorchjobs"): {"get"},
        ("trainer.kubeflow.org", "trainjobs"): {"get"},
        ("jobset.x-k8s.io", "jobsets"): {"get"},
        ("batch", "jobs"): {"get"},
        ("ray.io", "rayjobs"): {"get"},
        ("ray.io", "rayclusters"): {"get"},
        ("authorization.k8s.io", "localsubjectaccessreviews"): {"create"},
    }
    assert granted(render({"dataPlane": {"auth": {"mode": "none"}}})) == []
    training = {"dataPlane": {"trainingApi": {"enabled": True}}}
    [rules] = granted(render(training))
    assert rights(rules)["learnloop.dev", "trainingjobs"] == {"get", "list", "create", "patch"}
    bounded = render({**training, "watchNamespaces": ["team-a"]})
    assert granted(bounded) == [rules]
    assert not bounded.of("ClusterRole", "ClusterRoleBinding")
