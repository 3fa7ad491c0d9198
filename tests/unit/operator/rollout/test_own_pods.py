"""Only an arm's own pods speak for it: names as Kubernetes makes them, and PromQL as Prometheus evaluates it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from learnloop_api import names
from learnloop_operator.adapters.prometheus.gather_shadow_evidence import shadow_query
from learnloop_operator.adapters.prometheus.own_pods import own_pods
from learnloop_operator.adapters.prometheus.queries import Arms, counters_query, labelled

ONE, OTHER = "3f9a2c81", "00bad000"


def generated(base: str) -> str:
    """The name of a pod, as the API server makes it of `generateName`."""
    return base[:58] + "x7k2p"


@pytest.mark.parametrize("digest", ["7", "6d4f9", "5f6c8b7d9x"])
@pytest.mark.parametrize("length", [1, 8, *range(34, 56), 63])
def test_each_pod_that_kubernetes_makes_for_an_arm_is_its_own(length: int, digest: str) -> None:
    name = ("a.b" + "c" * length)[:length]
    pod = generated(f"{name}-{ONE}-{digest}-")
    assert re.fullmatch(own_pods(name, ONE), pod)
    assert re.fullmatch(own_pods(name), pod)
    other = generated(f"{name}-{OTHER}-{digest}-")
    if length < 57:  # a longer name leaves nothing of the revision, and is too long for a Service, too
        assert not re.fullmatch(own_pods(name, OTHER), pod)
        assert not re.fullmatch(own_pods(name, ONE), other)


@pytest.mark.parametrize(
    "pod",
    ["evil", f"md-{ONE}", f"md-{ONE}-0", f"md-{ONE}-abc-0", f"md-{ONE}-evil-6d4f9-x7k2p", f"x-md-{ONE}-6d4f9-x7k2p"]
    + [f"md-{OTHER}-6d4f9-x7k2p", f"md-{ONE}-6d4f9-x7k2p-b", f"md-{ONE}-0123456789a-x7k2p", f"mdx{ONE}-6d4f9-x7k2p"],
)
def test_pods_of_other_names_are_nobodys(pod: str) -> None:
    assert not re.fullmatch(own_pods("md", ONE), pod)


def series(revision: str, pod: str, step: int, metric: str = names.METRIC_EPISODES_ENDED) -> dict[str, str]:
    labels = f'namespace="ns",model_deployment="md",revision="{revision}",pod="{pod}",instance="{pod}"'
    outcome = ',outcome="failure"' if metric == names.METRIC_EPISODES_ENDED else ""
    return {"series": f"{metric}{{{labels}{outcome}}}", "values": f"0+{step}x60"}


def test_no_other_pod_poses_as_an_arm_nor_one_arm_as_the_other(promtool: Path, tmp_path: Path) -> None:
    own, theirs = f"md-{ONE}-6d4f9-x7k2p", f"md-{OTHER}-6d4f9-x7k2p"
    lost = names.METRIC_SHADOW_LOST
    written = [
        *(series(ONE, own, 1), series(OTHER, theirs, 2)),
        *(series(ONE, theirs, 100), series(OTHER, own, 100), series(ONE, "evil", 1000), series(OTHER, "evil", 1000)),
        *(series(OTHER, own, 3, lost), series(OTHER, "evil", 1000, lost)),
    ]

    def told(query: str, signal: str) -> str:
        return f"sum by (revision) (({query}) and on (learnloop_signal) {labelled(signal, 'vector(1)')})"

    arms = Arms("ns", "md", [ONE, OTHER])
    expected = [
        (told(counters_query(arms, 300), "ended"), {OTHER: 60, ONE: 30}),
        (told(shadow_query(Arms("ns", "md", [OTHER]), 300), "lost"), {OTHER: 90}),
        (told(counters_query(Arms("ns", "md", [ONE], ""), 300), "ended"), {ONE: 30 * 1101}),
    ]
    tests = [
        {
            "expr": query,
            "eval_time": "10m",
            "exp_samples": [{"labels": f'{{revision="{arm}"}}', "value": count} for arm, count in counts.items()],
        }
        for query, counts in expected
    ]
    case = {"interval": "10s", "input_series": written, "promql_expr_test": tests}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    done = subprocess.run([promtool, "test", "rules", tmp_path / "case.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
