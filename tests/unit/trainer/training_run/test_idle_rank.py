"""A rank that stays and waits for its next update."""

import time
from typing import Any

import pytest

from learnloop_api.wire.training import UpdateOrder
from learnloop_trainer import errors
from learnloop_trainer.training_run import continuous

ORDER = UpdateOrder(number=1, goes_on=True)


class Answers:
    """A store that answers one by one, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def update(self) -> UpdateOrder | None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []
    monkeypatch.setattr(time, "sleep", made.append)
    return made


def wait(make_order: Any, *answers: Any) -> int:
    run = make_order(continuous={"steps": 512})
    return continuous.following(run, run, Answers(*answers)).number


def test_an_idle_rank_asks_less_and_less_often(make_order: Any, pauses: list[float]) -> None:
    assert wait(make_order, *[None] * 30, ORDER) == 1
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.5, 5.0)


def test_a_refusal_does_not_end_an_idle_rank_and_refusals_in_a_row_do(make_order: Any, pauses: list[float]) -> None:
    refused = errors.StoreRefused("409 not now")
    assert wait(make_order, refused, errors.StoreUnavailable("away"), ORDER) == 1
    with pytest.raises(errors.StoreRefused):
        wait(make_order, refused)
