"""Only an arm's own pods speak for it: names as Kubernetes makes them, and PromQL as Prometheus evaluates it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_operator.prometheus.client import Sample
from learnloop_operator.prometheus.gather_evidence import shadow_query
from learnloop_operator.prometheus.queries import Arms, arm_evidence, counters_query, labelled, own_pods
from learnloop_operator.rollout.checks.unfinished_episodes import unfinished
from learnloop_operator.rollout.evidence import ArmEvidence, Openings, Verdict

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
    own, foreign = f"md-{ONE}-6d4f9-x7k2p", f"md-{OTHER}-6d4f9-x7k2p"
    lost = names.METRIC_SHADOW_LOST
    written = [
        *(series(ONE, own, 1), series(OTHER, foreign, 2)),
        *(series(ONE, foreign, 100), series(OTHER, own, 100), series(ONE, "evil", 1000), series(OTHER, "evil", 1000)),
        *(series(OTHER, own, 3, lost), series(OTHER, "evil", 1000, lost)),
    ]

    def answers(query: str, signal: str) -> str:
        return f"sum by (revision) (({query}) and on (learnloop_signal) {labelled(signal, 'vector(1)')})"

    arms = Arms("ns", "md", [ONE, OTHER])
    expected = [
        (answers(counters_query(arms, 300), "ended"), {OTHER: 60, ONE: 30}),
        (answers(shadow_query(Arms("ns", "md", [OTHER]), 300), "lost"), {OTHER: 90}),
        (answers(counters_query(Arms("ns", "md", [ONE], ""), 300), "ended"), {ONE: 30 * 1101}),
    ]
    tests = [
        {
            "expr": query,
            "eval_time": "10m",
            "exp_samples": [{"labels": f'{{revision="{arm}"}}', "value": count} for arm, count in counts.items()],
        }
        for query, counts in expected
    ]
    evaluate(promtool, tmp_path, written, tests)


def test_copies_are_of_the_episodes_that_any_of_the_arms_pods_has_opened(promtool: Path, tmp_path: Path) -> None:
    own, foreign = f"md-{ONE}-6d4f9-x7k2p", f"md-{OTHER}-6d4f9-x7k2p"
    opened = names.METRIC_EPISODES_OPENED
    written = [series(ONE, own, 2, opened), series(ONE, foreign, 1, opened), series(ONE, "evil", 1000, opened)]
    none = [each | {"values": "0x60"} for each in written]
    promql = shadow_query(Arms("ns", "md", [OTHER]), 300)
    query = f"sum (({promql}) and on (learnloop_signal) {labelled('episodes', 'vector(1)')})"
    test = {"expr": query, "eval_time": "10m"}
    evaluate(promtool, tmp_path, written, [test | {"exp_samples": [{"labels": "{}", "value": 90}]}])
    evaluate(promtool, tmp_path, none, [test | {"exp_samples": []}])


def evaluate(promtool: Path, folder: Path, written: list[dict[str, str]], tests: list[dict]) -> None:
    """Fail where Prometheus does not answer what the tests expect of the series that were written."""
    case = {"interval": "10s", "input_series": written, "promql_expr_test": tests}
    (folder / "case.yaml").write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    done = subprocess.run([promtool, "test", "rules", folder / "case.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


BEGAN, ENDS, DEADLINE = 600, 1800, 600
"""Seconds: when the rollout began, and the look at it."""
STABLE_POD, CANARY_POD = f"md-{OTHER}-6d4f9-x7k2p", f"md-{ONE}-5c8f7-q2w3e"


def counter(metric: str, revision: str, pod: str, step: float, more: str = "", since: int = 0) -> dict[str, str]:
    """A counter that grows by `step` every ten seconds from its first sample on."""
    labels = f'namespace="ns",model_deployment="md",revision="{revision}",pod="{pod}",instance="{pod}"{more}'
    looks = (ENDS - since) // 10 + 1
    silent = f"_x{since // 10} " if since else ""
    return {"series": f"{metric}{{{labels}}}", "values": f"{silent}{step:g}+{step:g}x{looks - 1}"}


def process(revision: str, pod: str, since: int) -> dict[str, str]:
    """A server that began to count then."""
    silent = f"_x{since // 10} " if since else ""
    values = f"{silent}{since}x{(ENDS - since) // 10}"
    return {**counter(names.METRIC_SERVER_STARTED, revision, pod, 1), "values": values}


@pytest.mark.parametrize(
    ("mode", "openers"),
    [
        ("service", {STABLE_POD: 20, CANARY_POD: 10}),
        ("every opening by the other arm", {STABLE_POD: 30}),
        ("gateway", {CANARY_POD: 30}),
    ],
)
def test_openings_are_counted_whichever_arms_pod_opens(promtool, tmp_path, mode, openers):
    opened, ended, lasted = names.METRIC_EPISODES_OPENED, names.METRIC_EPISODES_ENDED, names.METRIC_EPISODE_SECONDS
    first = BEGAN + 10
    written = [
        *(process(OTHER, STABLE_POD, 0), process(ONE, CANARY_POD, BEGAN - 10)),
        *(counter(opened, ONE, pod, count, since=first) for pod, count in openers.items()),
        counter(opened, ONE, "evil", 1000, since=first),
        counter(ended, ONE, CANARY_POD, 12, ',outcome="success"', since=first),
        *(counter(f"{lasted}_bucket", ONE, CANARY_POD, 12, f',le="{bound}"', first) for bound in ("10.0", "+Inf")),
        counter(opened, OTHER, STABLE_POD, 30),
        counter(ended, OTHER, STABLE_POD, 30, ',outcome="success"'),
        counter(f"{lasted}_bucket", OTHER, STABLE_POD, 30, ',le="10.0"'),
    ]
    query = counters_query(Arms("ns", "md", [ONE, OTHER]), ENDS - BEGAN, deadline=DEADLINE)

    def answers(signal: str, more: str = "") -> str:
        only = f"and on (learnloop_signal{', le' if more else ''}) label_replace({labelled(signal, 'vector(1)')}, "
        return f'sum by (revision) (({query}) {only}"le", "{more}", "", ""))'

    expected = {
        answers("opened"): {ONE: 3600, OTHER: 3600},
        answers("due"): {ONE: 1800, OTHER: 1800},
        answers("young", "10.0"): {ONE: 708, OTHER: 1770},
        answers("lasted", "10.0"): {ONE: 1440, OTHER: 3600},
    }
    tests = [
        {
            "expr": query,
            "eval_time": f"{ENDS}s",
            "exp_samples": [{"labels": f'{{revision="{arm}"}}', "value": count} for arm, count in counts.items()],
        }
        for query, counts in expected.items()
    ]
    evaluate(promtool, tmp_path, written, tests)
    samples = [sample("opened", 3600), sample("due", 1800), sample("young", 708, le="10.0")]
    canary = arm_evidence([*samples, sample("ended", 1440, outcome="success")])[ONE]
    reference = ArmEvidence(3600, openings=Openings(3600, 1800, 3600, 3600, 1770))
    verdict = unfinished(Analysis(), canary, reference, "the canary", "stable", 60.0)
    assert verdict.verdict is Verdict.BREACH


def sample(signal: str, value: float, **labels: str) -> Sample:
    return Sample({"revision": ONE, "learnloop_signal": signal, **labels}, float(value))


def test_a_container_that_starts_again_loses_nothing_that_it_has_counted(promtool: Path, tmp_path: Path) -> None:
    """Its openings lie with other pods too: endings that were forgotten would be episodes that never ended."""
    again, first, looks = 1200, BEGAN + 10, 60
    whole = counter(names.METRIC_EPISODES_ENDED, ONE, CANARY_POD, 12, ',outcome="success"', since=first)
    began = process(ONE, CANARY_POD, first)
    silent = f"_x{first // 10}"
    written = [
        whole | {"values": f"{silent} 12+12x{(again - first) // 10 - 1} 12+12x{looks}"},
        began | {"values": f"{silent} {first}x{(again - first) // 10 - 1} {again}x{looks}"},
        counter(names.METRIC_EPISODES_OPENED, ONE, STABLE_POD, 12, since=first),
        process(OTHER, STABLE_POD, 0),
    ]
    query = counters_query(Arms("ns", "md", [ONE]), ENDS - BEGAN, deadline=DEADLINE)

    def counted(signal: str, count: float) -> dict:
        expr = f"sum by (revision) (round(({query}) and on (learnloop_signal) {labelled(signal, 'vector(1)')}))"
        return {
            "expr": expr,
            "eval_time": f"{ENDS}s",
            "exp_samples": [{"labels": f'{{revision="{ONE}"}}', "value": count}],
        }

    evaluate(promtool, tmp_path, written, [counted("opened", 1440), counted("ended", 1440)])
