"""`make nightly-language`: what it takes for a model, how long it may learn, and what it skips with a reason."""

from pathlib import Path
from typing import Any

import pytest

from bench.language import server_parity
from bench.nightly_language import base
from bench.nightly_language.errors import NotHereError
from bench.nightly_language.learning import Asked, order, rounds_for


@pytest.mark.parametrize(
    ("model", "fix"),
    [
        ("/nowhere/at/all", "save_pretrained"),
        ("file:///nowhere", "save_pretrained"),
        ("s3://bucket/model", "hf://owner/name"),
        ("hf://owner", "hf://owner/name"),
    ],
)
def test_a_model_that_cannot_be_had_is_named_with_the_fix(tmp_path: Path, model: str, fix: str) -> None:
    with pytest.raises(NotHereError) as caught:
        base.fetched(model, tmp_path)
    assert model in str(caught.value)
    assert fix in str(caught.value)


def test_a_folder_of_ones_own_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert base.fetched(str(tmp_path), tmp_path / "unused") == (tmp_path.name, tmp_path)
    assert base.fetched(tmp_path.as_uri(), tmp_path / "unused") == (tmp_path.name, tmp_path)


def test_more_minutes_hold_more_rounds_and_a_few_seconds_hold_one() -> None:
    assert rounds_for(0.0, episodes=32, tokens=200.0, token_seconds=0.01) == 1
    one = rounds_for(1_600.0, episodes=32, tokens=200.0, token_seconds=0.01)
    assert rounds_for(3_200.0, episodes=32, tokens=200.0, token_seconds=0.01) == 2 * one > 2


def test_the_order_has_as_many_steps_as_its_rounds_have_episodes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    spec = order(tmp_path, Asked("ToolLookupEasy-v1", 3, 32, 64, 5e-4, 7))["spec"]
    assert (spec["totalSteps"], spec["seed"], spec["evaluation"]) == (96, 7, {"episodes": 64})


class Server:
    """llama.cpp's: it tells no log-probability of a token that ends within a character."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = iter(answers)

    def post(self, path: str, json: dict[str, Any]) -> "Server":
        self._said = next(self._answers)
        return self

    def raise_for_status(self) -> None:
        pass

    def json(self) -> dict[str, Any]:
        return self._said


def test_answers_whose_tokens_do_not_match_their_log_probabilities_are_left_out() -> None:
    whole = {"tokens": [4, 5], "completion_probabilities": [{"id": 4, "logprob": -1.0}, {"id": 5, "logprob": -2.0}]}
    torn = {"tokens": [230, 4, 5], "completion_probabilities": whole["completion_probabilities"]}
    found = server_parity.drawn(Server(torn, whole), [[1], [2]], 1.0)  # type: ignore[arg-type]
    assert [(list(one.prompt_ids), list(one.sampled_ids)) for one in found] == [([2], [4, 5])]
