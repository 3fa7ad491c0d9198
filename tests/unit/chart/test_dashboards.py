"""Dashboards: current, well-formed, and asking for what is exported."""

import subprocess
import sys

import pytest

from testing.metrics.queries import dashboards, expressions, panels, selectors

from .conftest import ROOT, Render

sys.path.insert(0, str(ROOT / "hack"))

from reference.metrics import described

EXPORTED = {item.name: frozenset(item.labels) for metrics in described().values() for item in metrics}
TITLES = {"RL Training Overview", "Model Performance", "Deployment Health", "Loop", "Memory", "Operator"}
UNSHOWN = {
    "learnloop_training_memory_bytes": "resource_utilization shows the share of it",
    "learnloop_training_gpu_memory_bytes": "resource_utilization shows the share of it",
    "learnloop_training_value": "a mean value alone says little; TensorBoard has it",
    "learnloop_training_learning_rate": "follows from the template; TensorBoard has it",
    "learnloop_training_replay_transitions": "follows from the template; TensorBoard has it",
    "learnloop_training_invalid_actions": "of shielded runs only; the proof has it",
    "learnloop_training_multiplier": "of constrained runs only; TensorBoard has it",
    "learnloop_training_constraint_excess": "of constrained runs only; TensorBoard has it",
    "learnloop_training_progress_ratio": "`kubectl get tjob` shows it",
    "learnloop_memory_recall_duration_seconds": "memory_latency is the same by the specification's name",
    "agent_rl_model_deployments_total": "rollouts that were promoted tell the same but for first models",
}
"""Of the metrics of learning, those that no panel shows, and why."""
EACH = [(name, page) for name, page in dashboards().items()]


def test_the_files_are_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, "hack/dashboards", "check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_those_of_the_specification_and_our_own_are_there() -> None:
    assert {page["title"].removeprefix("learnloop / ") for _, page in EACH} == TITLES
    assert len({page["uid"] for _, page in EACH}) == len(TITLES)


@pytest.mark.parametrize(("name", "page"), EACH, ids=dashboards())
def test_a_dashboard_is_well_formed(name: str, page: dict) -> None:
    shown = [panel for panel in panels(page) if panel["type"] != "row"]
    variables = {item["name"] for item in page["templating"]["list"]}
    assert "datasource" in variables
    for panel in shown:
        assert panel["title"], panel
        assert panel["description"], panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs)), panel["title"]
    titles = [panel["title"] for panel in shown]
    assert len(titles) == len(set(titles))
    places = [panel["gridPos"] for panel in shown]
    assert not [
        (one, other)
        for index, one in enumerate(places)
        for other in places[:index]
        if one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    ], "no panel lies over another"


def test_every_metric_of_learning_is_shown_or_stands_on_the_list() -> None:
    series = {str(item.name) for _, page in EACH for _, text in expressions(page) for item in selectors(text)}
    learning = {
        name
        for name in EXPORTED
        if name.startswith(("agent_rl_", "learnloop_training_", "learnloop_rollout", "learnloop_memory_recall"))
        or not name.startswith("learnloop_")
    }
    missing = {name for name in learning if not {name, f"{name}_bucket"} & series}
    assert missing == set(UNSHOWN)


def test_the_chart_makes_a_configmap_of_each_when_asked(render: Render) -> None:
    release = render({"dashboards": {"enabled": True, "labels": {"grafana_dashboard": "1"}, "folder": "rl"}})
    made = [item for item in release.of("ConfigMap") if item["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert len(made) == len(TITLES)
    for item in made:
        assert item["metadata"]["annotations"]["grafana_folder"] == "rl"
        ((name, text),) = item["data"].items()
        assert (
            text.strip() == (ROOT / "charts/learnloop/dashboards" / name.removeprefix("learnloop-")).read_text().strip()
        )
    assert not [
        item for item in render({}).of("ConfigMap") if "grafana_dashboard" in item["metadata"].get("labels", {})
    ]
