"""The rules of hardening guides for workloads, for every pod of the chart, however it is installed. See SECURITY.md."""

import pytest

from testing.manifests.made_by_operator import templates
from testing.manifests.pod_hardening import flaws
from testing.manifests.rendered_chart import VALUES

from ..conftest import Render

LASTING = {"Deployment", "StatefulSet"}
ACCEPTED: dict[tuple[str, str], str] = {
    ("ClusterTrainingRuntime", "node: no limit of memory"): (
        "what a run needs is its own: spec.pod.resources of a TrainingJob says it"
    )
}
"""Kind and finding → why it stays."""


@pytest.mark.parametrize("values", VALUES)
def test_no_pod_of_the_chart_misses_an_item_without_a_written_reason(values: str, render: Render) -> None:
    gaps = {
        (item["kind"], item["metadata"]["name"], what)
        for item in render(VALUES[values]).objects
        for template in templates(item)
        for what in flaws(template, probed=item["kind"] in LASTING)
        if (item["kind"], what) not in ACCEPTED
    }
    assert gaps == set()


def test_all_kinds_that_run_pods_were_looked_at(render: Render) -> None:
    kinds = {item["kind"] for values in VALUES.values() for item in render(values).objects if list(templates(item))}
    assert kinds == {"Deployment", "StatefulSet", "CronJob", "Pod", "ClusterTrainingRuntime"}


def test_every_reason_is_still_needed(render: Render) -> None:
    needed = {
        (item["kind"], what)
        for values in VALUES.values()
        for item in render(values).objects
        for template in templates(item)
        for what in flaws(template, probed=item["kind"] in LASTING)
    }
    assert set(ACCEPTED) <= needed
