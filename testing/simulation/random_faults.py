"""Events of any simulated rollout between two looks: time passes, and things go away and come back."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from testing.simulation.rollout_cluster import Cluster


class Fate(RuleBasedStateMachine):
    """A state machine over `cluster`, which the one who inherits makes when it begins."""

    cluster: Cluster

    @rule(seconds=st.integers(0, 40))
    def sleep(self, seconds: int) -> None:
        self.cluster.tick(seconds)

    @rule(writes=st.integers(0, 14))
    def die(self, writes: int) -> None:
        self.cluster.reconcile(crash_after=writes)

    @rule(up=st.booleans())
    def prometheus(self, up: bool) -> None:
        self.cluster.prometheus = up

    @rule(flows=st.booleans())
    def traffic(self, flows: bool) -> None:
        self.cluster.traffic = flows

    @rule(on=st.booleans())
    def suspend(self, on: bool) -> None:
        self.cluster.spec["suspend"] = on

    @rule()
    def mend(self) -> None:
        self.cluster.broken.clear()
