"""Episodes a second of each namespace: what is over its quota is refused with a sentence, and no neighbour feels it."""

import os
from unittest.mock import patch

import pytest

from learnloop_common.settings import ConfigurationError
from learnloop_dataplane.concurrency.limits import BURST_SECONDS, EpisodeRate
from learnloop_dataplane.config import Config, Quotas
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.metrics import Metrics

BASE = {"LEARNLOOP_DSN": "postgresql://data/plane", "LEARNLOOP_ARTIFACTS": "file:///artifacts"}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def admitted(rate: EpisodeRate, namespace: str, tries: int) -> int:
    taken = 0
    for _ in range(tries):
        try:
            rate.admit(namespace)
        except ApiError:
            continue
        taken += 1
    return taken


def test_ten_seconds_worth_at_once_and_then_what_the_quota_says() -> None:
    clock, metrics = Clock(), Metrics()
    rate = EpisodeRate(Quotas.model_validate({"default": {"episodesPerSecond": 5}}), metrics, clock)
    assert admitted(rate, "team-a", 200) == 5 * BURST_SECONDS
    assert admitted(rate, "team-b", 10) == 10, "a neighbour has its own"
    clock.now += 2
    assert admitted(rate, "team-a", 200) == 10
    with pytest.raises(ApiError) as refused:
        rate.admit("team-a")
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    assert "team-a sends more than 5 episodes a second (dataPlane.quotas.episodesPerSecond" in refused.value.message
    assert b'learnloop_quota_refusals_total{namespace="team-a",quota="episodes"}' in metrics.render()


def test_a_namespace_has_its_own_limits_and_the_others_of_the_default() -> None:
    quotas = (
        '{"default": {"artifactBytes": 1.073741824e+10, "memories": 10},'
        ' "namespaces": {"big": {"memories": 1000}, "free": {"artifactBytes": null}}}'
    )
    with patch.dict(os.environ, BASE | {"LEARNLOOP_QUOTAS": quotas}):
        config = Config.read()
    assert config.quotas.of("big").memories == 1000
    assert config.quotas.of("big").artifact_bytes == 10 * 2**30, "as Helm writes large numbers"
    assert config.quotas.of("free").artifact_bytes is None
    assert config.quotas.of("any").memories == 10
    assert admitted(EpisodeRate(config.quotas, Metrics()), "any", 1000) == 1000, "none is set"


@pytest.mark.parametrize("wrong", ["{", '{"default": {"memory": 1}}', '{"default": {"memories": 0}}', "[]"])
def test_a_wrong_quota_stops_the_process_with_the_variable(wrong: str) -> None:
    refused = pytest.raises(ConfigurationError, match=r"LEARNLOOP_QUOTAS|quotas")
    with patch.dict(os.environ, BASE | {"LEARNLOOP_QUOTAS": wrong}), refused:
        Config.read()


def test_a_crowd_of_namespaces_takes_no_more_memory_than_that_of_known_ones(monkeypatch) -> None:
    monkeypatch.setattr("learnloop_dataplane.concurrency.limits.MOST_NAMESPACES", 10)
    rate = EpisodeRate(Quotas.model_validate({"default": {"episodesPerSecond": 5}}), Metrics())
    for number in range(100):
        rate.admit(f"team-{number}")
    assert len(rate._left) == 10
