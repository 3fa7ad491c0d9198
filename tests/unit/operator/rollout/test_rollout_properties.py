"""Anything may happen to a rollout, in any order: what must hold between two writes holds, and every run ends."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from rollout_cluster import BAD, BETTER, GOOD, SHA, Cluster, uri
from shadow_cluster import ShadowCluster

from learnloop_api import names


class Chaos(RuleBasedStateMachine):
    """Anything people, pods, Prometheus and the operator may do, in any order."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster()
        self.models = 0

    @rule(quality=st.sampled_from([GOOD, BETTER, BAD]))
    def new_model(self, quality: float) -> None:
        self.models += 1
        self.cluster.wish(self.models, quality)

    @rule(number=st.integers(0, 5))
    def go_back(self, number: int) -> None:
        model = uri(min(number, self.models))
        self.cluster.spec["model"] = {"uri": model, "sha256": SHA}

    @rule(seconds=st.integers(1, 40))
    def run(self, seconds: int) -> None:
        self.cluster.run(seconds)

    @rule(seconds=st.integers(0, 40))
    def sleep(self, seconds: int) -> None:
        self.cluster.tick(seconds)

    @rule(writes=st.integers(0, 14))
    def die(self, writes: int) -> None:
        self.cluster.reconcile(crash_after=writes)

    @rule(up=st.booleans())
    def prometheus(self, up: bool) -> None:
        self.cluster.prometheus = up

    @rule(seconds=st.integers(0, 5))
    def scrape_late(self, seconds: int) -> None:
        self.cluster.lag = seconds

    @rule(flows=st.booleans())
    def traffic(self, flows: bool) -> None:
        self.cluster.traffic = flows

    @rule(on=st.booleans())
    def suspend(self, on: bool) -> None:
        self.cluster.spec["suspend"] = on

    @rule()
    def retry(self) -> None:
        self.cluster.annotations[names.ANNOTATION_RETRY] = str(self.cluster.now)

    @precondition(lambda self: self.cluster.status.get("canary"))
    @rule()
    def abort(self) -> None:
        self.cluster.annotations[names.ANNOTATION_ABORT] = self.cluster.status["canary"]["revision"]

    @precondition(lambda self: self.cluster.status.get("stable"))
    @rule(
        verb=st.sampled_from(["reject", "pause", "resume", "restart", "undo", "approve"]),
        arm=st.sampled_from(["stable", "canary", "previous", "blockedRevision"]),
    )
    def say(self, verb: str, arm: str) -> None:
        revision = (self.cluster.status.get(arm) or self.cluster.status["stable"])["revision"]
        self.cluster.annotations[names.verb_annotation(verb)] = f"{revision} at {self.cluster.now}"

    @precondition(lambda self: self.cluster.status.get("canary"))
    @rule()
    def break_canary(self) -> None:
        self.cluster.broken = {self.cluster.status["canary"]["revision"]}

    @rule()
    def mend(self) -> None:
        self.cluster.broken.clear()

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            assert self.cluster.settle() in ("Healthy", "RolledBack"), self.cluster.status["verdict"]
            assert self.cluster.weight(self.cluster.status["stable"]["uri"]) == 100


TestChaos = Chaos.TestCase
TestChaos.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=15, suppress_health_check=list(HealthCheck)
)


class ShadowChaos(Chaos):
    """The same for a rollout that begins in shadow, where the canary may fail on copies, too."""

    @initialize()
    def begin(self) -> None:
        self.shadow = ShadowCluster()
        self.cluster, self.models = self.shadow, 0

    @rule(share=st.sampled_from([0.0, 0.9]))
    def fail_in_shadow(self, share: float) -> None:
        self.shadow.failing = share

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.shadow.failing = 0.0
        super().teardown()


TestShadowChaos = ShadowChaos.TestCase
TestShadowChaos.settings = settings(
    max_examples=max(10, settings().max_examples // 3),
    stateful_step_count=15,
    suppress_health_check=list(HealthCheck),
)
