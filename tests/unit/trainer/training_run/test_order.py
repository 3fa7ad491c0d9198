"""Orders that cannot be carried out are refused with field, value and fix."""

import json

import pytest

from learnloop_environments.errors import ConfigError
from learnloop_trainer.store import choose
from learnloop_trainer.training_order import VARIABLE, Place, read_order, read_place


def changed(order: dict, path: str, value) -> str:
    *parents, last = path.split(".")
    node = order
    for parent in parents:
        node = node[parent]
    node[last] = value
    return json.dumps(order)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("spec.totalSteps", -5, "spec.totalSteps: '-5' is refused"),
        ("spec.algorithm", "sarsa", "spec.algorithm: 'sarsa' is refused"),
        ("spec.hyperparameters.learningRate", "fast", "spec.hyperparameters.learningRate: 'fast' is refused"),
        ("spec.hyperparameters.clip", 2.0, "spec.hyperparameters.clip: '2.0' is refused"),
        ("spec.hyperparameters.embedding", 8, "spec.hyperparameters.embedding: '8' is not a hyperparameter of ppo"),
        ("spec.data", {}, "spec.data.environment: '' is missing"),
        ("baselineSha256", "abc", "baselineSha256: 'abc' is refused"),
        ("job", "Not A Name", "job: 'Not A Name' is refused"),
    ],
)
def test_a_bad_order_names_the_field_the_value_and_the_fix(small, path, value, words):
    with pytest.raises(ConfigError, match=rf"^{words}.*; .*(correct|set|remove) it"):
        read_order({VARIABLE: changed(small(), path, value)})


@pytest.mark.parametrize("text", ["", "{", "[]", "x" * 2_000_000])
def test_an_order_that_is_no_json_object_is_refused_in_one_short_sentence(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_order({VARIABLE: text})
    assert len(str(refusal.value)) < 400
    assert "\n" not in str(refusal.value)


def test_a_rank_outside_of_its_world_is_refused() -> None:
    with pytest.raises(ConfigError, match="RANK: '2' is not a whole number from 0 to 1"):
        read_place({"RANK": "2", "WORLD_SIZE": "2"}, 8)


def test_more_ranks_than_environments_are_refused() -> None:
    with pytest.raises(ConfigError, match="environments: '1' leaves some of the 2 ranks without work"):
        read_place({"RANK": "0", "WORLD_SIZE": "2"}, 1)


def test_environments_are_shared_out_without_gap_or_overlap() -> None:
    shares = [Place(rank, 3).share(64) for rank in range(3)]
    assert [n for share in shares for n in share] == list(range(64))
    assert {len(share) for share in shares} == {21, 22}


@pytest.mark.parametrize("environ", [{"LEARNLOOP_STORE": "s3://bucket"}, {"LEARNLOOP_DATA_URL": "nowhere"}, {}])
def test_a_store_that_cannot_be_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"LEARNLOOP_(STORE|DATA_URL): .*; "):
        choose(environ, "job")
