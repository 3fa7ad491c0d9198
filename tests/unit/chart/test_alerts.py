"""Alerts: they fire when they should, name what is exported, and lead to a runbook that exists."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from testing.metrics.queries import RULES, rules

from .conftest import ROOT, Render

sys.path.insert(0, str(ROOT / "hack"))


CASES = Path(__file__).parent / "rules" / "alerts_test.yaml"
SPECIFIED = {
    *("LearnloopTrainingFailsInARow", "LearnloopModelValidationFailed", "LearnloopModelRolledBack"),
    *("LearnloopCollectionErrors", "LearnloopNatsLost"),
}


def test_alerts_fire_when_they_should_and_not_before(promtool: Path, tmp_path: Path) -> None:
    for path in (RULES, CASES):
        shutil.copy(path, tmp_path)
    for what in (["check", "rules", RULES.name], ["test", "rules", CASES.name]):
        done = subprocess.run([promtool, *what], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load(CASES.read_text())["tests"]
    fired = {item["alertname"] for case in cases for item in case["alert_rule_test"] if item["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}


def test_the_five_of_the_specification_are_there() -> None:
    assert {rule["alert"] for rule in rules()} >= SPECIFIED


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_names_a_runbook_that_exists(rule: dict) -> None:
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (.+)$", (ROOT / path).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")


def test_the_chart_ships_the_same_rules_to_both_kinds_of_prometheus(render: Render) -> None:
    release = render({"alerts": {"prometheusRule": True, "labels": {"release": "kps"}, "embedded": True}})
    wanted = yaml.safe_load(RULES.read_text())
    (rule,) = release.of("PrometheusRule")
    assert rule["spec"] == wanted
    assert rule["metadata"]["labels"]["release"] == "kps"
    (config,) = [item for item in release.of("ConfigMap") if "prometheus.yml" in item["data"]]
    assert yaml.safe_load(config["data"]["prometheus.yml"])["rule_files"] == ["/etc/prometheus/alerts.yml"]
    assert yaml.safe_load(config["data"]["alerts.yml"]) == wanted


def test_nothing_of_it_is_there_unless_it_is_asked_for(render: Render) -> None:
    release = render({})
    assert release.of("PrometheusRule") == []
    (config,) = [item for item in release.of("ConfigMap") if "prometheus.yml" in item["data"]]
    assert "alerts.yml" not in config["data"]
    assert "rule_files" not in yaml.safe_load(config["data"]["prometheus.yml"])
