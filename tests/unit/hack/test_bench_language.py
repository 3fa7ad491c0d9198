"""`make bench-language`: the peer learns by the hyperparameters of the case it is compared with."""

from pathlib import Path

import pytest

from bench.language import peer
from bench.language.tiny_runs import Case, parameters_of


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_peer_is_told_how_the_step_size_of_the_case_falls(schedule: str) -> None:
    case = Case("grpo", "lora", 3, {"learning_rate": 2e-3, "learning_rate_schedule": schedule})
    told = peer.job(Path("base"), Path("model"), parameters_of(case), seed=7, rounds=case.rounds)
    assert (told["schedule"], told["learning_rate"], told["rounds"]) == (schedule, 2e-3, 3)
