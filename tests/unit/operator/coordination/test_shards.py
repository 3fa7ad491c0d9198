"""Each namespace has one shard; one shard more takes its share from all others and disturbs nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_operator.adapters import settings
from learnloop_operator.core.coordination.shards import MOST, WHOLE, Shard, read, shard_of

names = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@given(names, st.integers(1, MOST))
def test_one_shard_owns_a_namespace(namespace: str, count: int) -> None:
    owners = [index for index in range(count) if Shard(index, count).owns(namespace)]
    assert owners == [shard_of(namespace, count)]


@given(names, st.integers(1, MOST - 1))
def test_with_one_more_a_namespace_stays_or_goes_to_the_new_one(namespace: str, count: int) -> None:
    assert shard_of(namespace, count + 1) in (shard_of(namespace, count), count)


def test_shares_are_even() -> None:
    found = [shard_of(f"team-{number}", 4) for number in range(4000)]
    assert all(900 < found.count(index) < 1100 for index in range(4))


def test_the_first_shard_has_the_lease_of_one_that_is_alone() -> None:
    assert Shard(0, 3).lease("op") == WHOLE.lease("op") == "op"
    assert Shard(2, 3).lease("op") == "op-2"


@pytest.mark.parametrize("text", ["1", "2/2", "-1/2", "a/b", "0/0", f"0/{MOST + 1}", "1/2/3"])
def test_what_is_no_shard_is_refused_with_a_fix(text: str) -> None:
    with pytest.raises(ValueError, match="as in 1/3"):
        read(text)
    with pytest.raises(settings.SettingsError, match="LEARNLOOP_SHARD"):
        settings.from_environment({"LEARNLOOP_SHARD": text})


def test_limits_of_the_cluster_take_one_operator() -> None:
    limits = '{"cluster": {"runs": 3}}'
    with pytest.raises(settings.SettingsError, match="limit namespaces, or run one operator"):
        settings.from_environment({"LEARNLOOP_SHARD": "0/2", "LEARNLOOP_TRAINING_QUOTAS": limits})
    own = settings.from_environment(
        {"LEARNLOOP_SHARD": "1/2", "LEARNLOOP_TRAINING_QUOTAS": '{"namespace": {"runs": 3}}'}
    )
    assert own.shard == Shard(1, 2)
    assert settings.from_environment({"LEARNLOOP_TRAINING_QUOTAS": limits}).shard == WHOLE
