from learnloop_common.circuit_breaker import Breaker


def test_it_rests_twice_as_long_after_each_failure_and_lets_one_try() -> None:
    now = 100.0
    circuit, rests = Breaker(lambda: now), []
    assert circuit.allows()
    for _ in range(10):
        circuit.failed()
        begin = now
        while not circuit.allows():
            now += 0.5
        assert not circuit.allows(), "somebody is trying"
        rests.append(now - begin)
    assert rests == [min(2.0**n, 60.0) for n in range(10)]
    circuit.worked()
    assert circuit.allows()
    assert circuit.allows()


def test_a_caller_who_goes_away_leaves_the_try_to_another() -> None:
    circuit = Breaker(lambda: 1e9)
    circuit._failures = 1
    assert circuit.allows()
    assert not circuit.allows()
    circuit.gave_up()
    assert circuit.allows()
