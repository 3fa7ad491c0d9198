"""The console in a real Chromium before a real API server: a rollout's changes reach a page that stays open."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from testing.browsers.chromium import missing
from testing.browsers.console_in_browser import ConsoleInBrowser, console_in_browser

from .test_console import rollout

GOOD, BAD = "b41d07ee", "0bad0bad"


@pytest.fixture
def page(api_server: Path, namespace: str) -> Iterator[ConsoleInBrowser]:
    if why := missing():
        pytest.skip(why)
    with console_in_browser(("--kubeconfig", str(api_server), "-n", namespace)) as console:
        yield console


def arm(revision: str) -> dict:
    return {"revision": revision, "uri": f"learnloop://x/{revision}", "replicas": 1, "readyReplicas": 1}


def test_a_rollout_and_its_roll_back_are_followed_on_one_page(kube, namespace, page):
    """The test writes what an operator would."""
    kube.create(rollout(namespace))

    def report(**status) -> None:
        kube.merge(rollout(namespace), {"status": status}, "status")

    report(phase="Healthy", verdict="the first model serves everybody", stable=arm(GOOD), weight=0)
    page.go(f"{namespace}/rollouts/walker")
    page.sees("the first model serves everybody")
    report(phase="Progressing", verdict="holding at 10 %", canary=arm(BAD), weight=10, stepText="1/4")
    page.sees("holding at 10 %")
    assert BAD in page.shows()
    page.picture("console-api-progressing")
    at = datetime.now(UTC).isoformat()
    sentence = "return 9 of 20 episodes against 480: rolled back"
    blocked = {"revision": BAD, "uri": f"learnloop://x/{BAD}", "reason": "GrossBreach", "message": sentence, "at": at}
    report(
        phase="RolledBack", verdict=sentence, canary=None, weight=0, blockedRevision=blocked, blockedRevisions=[blocked]
    )
    page.sees("RolledBack")
    page.sees("GrossBreach")
    page.picture("console-api-rolled-back")
    kube.delete(rollout(namespace))
    page.sees("No rollout of this name")
    assert page.complaints == []
