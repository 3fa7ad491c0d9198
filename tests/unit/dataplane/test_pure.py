"""Rewards, redaction, configuration, subjects, metrics: decisions without a server."""

import math
import os
import statistics
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.reward_policy import Normalisation, RewardComponent, RewardPolicySpec
from learnloop_common.reward_rules.components import LIMIT, Episode, component_value, evaluate
from learnloop_common.settings import ConfigurationError
from learnloop_dataplane.config import Config
from learnloop_dataplane.nats.event_outbox import RefusedMessage, split_subject
from learnloop_dataplane.postgres.database import uuid7
from learnloop_dataplane.rewards.reward_tables import Running, normalise

numbers = st.floats(allow_nan=False, allow_infinity=False)
episodes = st.builds(
    Episode,
    episode_return=numbers,
    success=st.none() | st.booleans(),
    steps=st.integers(0, 10_000),
    values=st.dictionaries(st.sampled_from(["cost", "errors"]), numbers),
)
components = st.builds(
    lambda kind, scale: RewardComponent(
        name="c", type=kind, weight=1.0, scale=scale, key="cost" if kind == "outcome" else None
    ),
    st.sampled_from(["environment", "success", "efficiency", "outcome"]),
    st.floats(min_value=1e-300, max_value=1e300),
)


@given(components, episodes)
def test_a_component_is_always_a_bounded_number(component: RewardComponent, episode: Episode) -> None:
    value = component_value(component, episode)
    if value is None:
        assert component.type in ("outcome", "success")
        return
    assert math.isfinite(value)
    assert abs(value) <= LIMIT
    if component.type in ("success", "efficiency"):
        assert 0 <= value <= 1


@given(episodes)
def test_the_raw_reward_lies_between_the_components(episode: Episode) -> None:
    spec = RewardPolicySpec(
        components=[
            RewardComponent(name="a", type="success", weight=0.25),
            RewardComponent(name="b", type="efficiency", weight=0.75, scale=100),
        ]
    )
    worth = evaluate(spec, episode)
    assert min(worth.components.values()) - 1e-12 <= worth.raw <= max(worth.components.values()) + 1e-12


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60))
def test_running_statistics_agree_with_the_batch(values: list[float]) -> None:
    running = Running()
    for value in values:
        running = running.add(value)
    assert running.mean == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-6)
    assert running.std == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-4)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40), st.floats(0.1, 100))
def test_normalised_rewards_stay_within_the_clip_and_in_order(values: list[float], clip: float) -> None:
    rule, running = Normalisation(method="zscore", clip=clip), Running()
    for value in values:
        running = running.add(value)
        assert abs(normalise(value, running, rule)) <= clip
    scores = [normalise(value, running, rule) for value in sorted(values)]
    assert scores == sorted(scores)


@given(st.floats(-1e6, 1e6), st.integers(1, 50))
def test_equal_rewards_are_worth_nothing_special(value: float, count: int) -> None:
    running = Running()
    for _ in range(count):
        running = running.add(value)
    assert normalise(value, running, Normalisation()) == 0.0


plain = st.text(alphabet=st.sampled_from(" .,;()[]abc\n"), max_size=20)


@pytest.mark.parametrize(
    "subject", ["agent.rl.trajectory.v1", "agent.rl.trajectory.v1.Team.x", "agent.rl.trajectory.v1.team", "other.a.b"]
)
def test_a_subject_without_namespace_and_name_is_refused(subject: str) -> None:
    with pytest.raises(RefusedMessage):
        split_subject(subject, "agent.rl.trajectory.v1")


def test_a_name_may_contain_dots_and_a_namespace_may_not() -> None:
    assert split_subject("agent.rl.trajectory.v1.ns.my.agent", "agent.rl.trajectory.v1") == ("ns", "my.agent")


GOOD = {"LEARNLOOP_DSN": "postgresql://u:secret@h/d", "LEARNLOOP_ARTIFACTS": "file:///data"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"LEARNLOOP_DSN": ""}, "LEARNLOOP_DSN: '' is empty: give postgresql://"),
        ({"LEARNLOOP_DSN": "mysql://u:secret@h/d"}, "LEARNLOOP_DSN: does not start with postgresql://"),
        ({"LEARNLOOP_ARTIFACTS": "data"}, "LEARNLOOP_ARTIFACTS: 'data' is not valid: give file:///"),
        ({"LEARNLOOP_RETENTION_DAYS": "0"}, "LEARNLOOP_RETENTION_DAYS: '0' is not valid"),
        ({"LEARNLOOP_AUTH": "maybe"}, "LEARNLOOP_AUTH: 'maybe' is not valid"),
        ({"LEARNLOOP_WAREHOUSE": "http://u:secret@h/d"}, "LEARNLOOP_WAREHOUSE: is not an address: write clickhouse://"),
        ({"LEARNLOOP_NATS_ISSUER_KEY": "secret"}, "LEARNLOOP_NATS_ISSUER_KEY: is not 32 random bytes"),
        ({"LEARNLOOP_DATABASE_IS_OWN": "true"}, "takes LEARNLOOP_DATABASE_PASSWORD"),
        ({"LEARNLOOP_DSN_FILE": "/nowhere/dsn"}, "LEARNLOOP_DSN_FILE=/nowhere/dsn: cannot be read"),
    ],
)
def test_a_wrong_environment_names_the_variable_and_keeps_secrets(change: dict[str, str], expected: str) -> None:
    with patch.dict(os.environ, GOOD | change), pytest.raises(ConfigurationError) as error:
        Config.read()
    assert expected in str(error.value)
    assert "secret" not in str(error.value)


def test_secrets_may_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text("postgresql://u@h/d\n")
    with patch.dict(os.environ, {"LEARNLOOP_DSN_FILE": str(tmp_path / "dsn"), "LEARNLOOP_ARTIFACTS": "s3://b/p"}):
        config = Config.read()
    assert config.dsn.get_secret_value() == "postgresql://u@h/d"


def test_ids_follow_time_and_differ_in_a_forked_process() -> None:
    ids = [uuid7() for _ in range(10_000)]
    assert sorted(ids, key=lambda identity: identity.bytes) == ids
    assert len(set(ids)) == 10_000
    assert {identity.version for identity in ids} == {7}
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, uuid7().bytes)
        os._exit(0)
    os.wait()
    os.close(writing)
    with open(reading, "rb", buffering=0) as pipe:
        assert pipe.read(16)[8:] != uuid7().bytes[8:]
