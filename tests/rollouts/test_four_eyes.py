"""approvals.fourEyes: who wrote what is rolled out does not let it on, whatever the API server let through."""

from dataclasses import replace

import pytest

from learnloop_api.names import ANNOTATION_AUTHOR
from learnloop_operator.rollout.state.snapshot import Snapshot
from testing.simulation.rollout_cluster import BETTER, STEPS, Cluster, uri

from .test_orders import last, say, until


class Watched(Cluster):
    """A cluster whose platform asks for two people."""

    def snapshot(self) -> Snapshot:
        bare = super().snapshot()
        return replace(bare, defaults=replace(bare.defaults, four_eyes=True, names_are_verified=True))


@pytest.fixture
def paused() -> Watched:
    """A better model whose first step waits for approval; alice wrote it."""
    cluster = Watched([{**step, "pause": True} for step in STEPS])
    cluster.annotations[ANNOTATION_AUTHOR] = "alice"
    cluster.run(10)
    cluster.wish(1, BETTER)
    until(cluster, 10)
    for _ in range(300):
        if cluster.status["phase"] == "Paused":
            return cluster
        cluster.run(1)
    raise AssertionError(cluster.status["verdict"])


@pytest.mark.parametrize("verb", ["approve", "promote", "skip"])
def test_the_author_lets_nothing_on(paused: Watched, verb: str) -> None:
    say(paused, verb, paused.status["canary"]["revision"], by="alice")
    paused.run(30)
    assert paused.weight(uri(1)) == 10
    assert (last(paused)["verb"], last(paused)["outcome"]) == (verb, "refused")
    assert "alice wrote this spec: another person must order it" in last(paused)["message"]


def test_somebody_else_does(paused: Watched) -> None:
    say(paused, "approve", paused.status["canary"]["revision"], by="bob")
    paused.run(5)
    assert paused.weight(uri(1)) > 10


def test_a_spec_that_nobody_signed_is_let_on_by_nobody(paused: Watched) -> None:
    del paused.annotations[ANNOTATION_AUTHOR]
    say(paused, "approve", paused.status["canary"]["revision"], by="bob")
    paused.run(5)
    assert paused.weight(uri(1)) == 10
    assert ANNOTATION_AUTHOR in last(paused)["message"]


def test_rolling_back_needs_nobody_else(paused: Watched) -> None:
    say(paused, "abort", paused.status["canary"]["revision"], by="alice")
    paused.run(5)
    assert paused.weight(uri(1)) == 0
