"""The API server's clock, read from the Dates of its answers."""

from email.utils import formatdate

from hypothesis import given, strategies as st

from learnloop_common.cluster_clock import ClusterClock


class Machine:
    """A machine whose own clock shows 1000 s, before an API server whose clock is `ahead` of it."""

    def __init__(self, ahead: float) -> None:
        self.passed, self.ahead, self.set = 0.0, ahead, 0.0
        self.clock = ClusterClock(lambda: 1000.0 + self.passed + self.set, lambda: 50.0 + self.passed)

    def real(self) -> float:
        return 1000.0 + self.passed + self.ahead

    def ask(self, there: float = 0.0, back: float = 0.0) -> None:
        request = self.clock.ask()
        self.passed += there
        date = formatdate(self.real(), usegmt=True)
        self.passed += back
        self.clock.answered(request, date)


def test_it_is_the_machines_own_until_an_answer_has_a_date() -> None:
    machine = Machine(300.0)
    for date in (None, "", "soon", "Thu, 99 Jan 1970 00:00:00 GMT"):
        machine.clock.answered(machine.clock.ask(), date)
    assert machine.clock.now() == 1000.0


@given(
    ahead=st.floats(-900, 900),
    samples=st.lists(st.tuples(st.floats(0, 0.2), st.floats(0, 0.2), st.floats(0, 90)), min_size=1, max_size=12),
    stepped=st.floats(-400, 400),
)
def test_it_is_never_further_off_than_half_an_answer_and_half_a_second(ahead, samples, stepped):
    machine = Machine(ahead)
    for there, back, later in samples:
        machine.ask(there, back)
        machine.passed += later
        machine.set = stepped  # somebody sets the machine's own clock meanwhile
        assert abs(machine.clock.now() - machine.real()) <= 0.7 + 1e-6
        assert machine.clock.moment().timestamp() == round(machine.clock.now(), 6)


def test_a_clock_that_was_set_is_believed_again_with_the_next_answer() -> None:
    machine = Machine(0.0)
    machine.ask()
    machine.ahead = -300.0
    machine.ask()
    assert abs(machine.clock.now() - machine.real()) <= 0.5
