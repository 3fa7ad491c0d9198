"""The steps of an episode become a trajectory of the contract, or is refused."""

import pytest
from hypothesis import given, strategies as st

from learnloop_api.wire.base import LARGEST, MOST
from learnloop_api.wire.trajectory import Trajectory
from learnloop_sdk.errors import Counters
from learnloop_sdk.trajectory_encoding import encoded, redact_text, step

HEAD = {
    "trajectory_id": "t1",
    "agent": "walker",
    "task": "mail anna@example.org",
    "episode_id": "e1",
    "policy_revision": "r1",
    "started_at": "2026-01-31T12:00:00Z",
    "ended_at": "2026-01-31T12:00:09Z",
    "outcome": {"status": "completed", "episode_return": 1.0},
    "metadata": {},
}
NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**70), 2**70) | st.booleans()
ANYTHING = NUMBERS | st.none() | st.text(max_size=3)
VECTORS = st.lists(NUMBERS, max_size=3) | st.lists(ANYTHING, max_size=2) | st.text(max_size=3)
ROWS = st.lists(st.tuples(VECTORS, VECTORS | NUMBERS, NUMBERS | st.none(), st.floats()), min_size=1, max_size=3)


def steps_of(*rows: tuple) -> list[dict]:
    return [step((observation, action, log_prob, True, None), reward) for observation, action, log_prob, reward in rows]


@given(ROWS)
def test_whatever_is_encoded_is_a_trajectory(rows: list[tuple]) -> None:
    counters = Counters()
    body = encoded(HEAD | {"steps": steps_of(*rows)}, redact_text, counters)
    if body is None:
        assert counters.trajectories_rejected == 1
        return
    assert len(Trajectory.model_validate_json(body, strict=True).steps) == len(rows)
    assert "anna" not in body.decode()


@pytest.mark.parametrize("action", [1, -MOST, [0.5, 1], []])
def test_numbers_arrive_as_they_were(action) -> None:
    steps = steps_of(([0.1, 2], action, -0.7, 1.5), ([LARGEST, -LARGEST], action, None, -2.0))
    steps[-1]["truncated"] = True
    body = encoded(HEAD | {"steps": steps}, redact_text, Counters())
    first, second = Trajectory.model_validate_json(body or b"").steps
    assert (first.observation, first.action, first.log_prob, first.reward) == ([0.1, 2.0], action, -0.7, 1.5)
    assert (second.observation, second.log_prob, second.truncated, first.truncated) == (
        [LARGEST, -LARGEST], None, True, False,
    )  # fmt: skip
