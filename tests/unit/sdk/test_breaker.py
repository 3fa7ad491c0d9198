import pytest

from learnloop_sdk.transport import circuit_breaker
from learnloop_sdk.transport.circuit_breaker import LONGEST_REST, Breaker


def test_it_rests_twice_as_long_after_each_failure_and_lets_one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(circuit_breaker.time, "monotonic", lambda: now)
    circuit, rests = Breaker(), []
    assert circuit.allows()
    for _ in range(10):
        circuit.failed()
        begin = now
        while not circuit.allows():
            now += 0.5
        assert not circuit.allows(), "somebody is trying"
        rests.append(now - begin)
    assert rests == [min(2.0**n, LONGEST_REST) for n in range(10)]
    circuit.worked()
    assert circuit.allows()
    assert circuit.allows()


def test_a_caller_who_goes_away_leaves_the_try_to_another() -> None:
    circuit = Breaker()
    circuit._failures = 1
    assert circuit.allows()
    assert not circuit.allows()
    circuit.gave_up()
    assert circuit.allows()
