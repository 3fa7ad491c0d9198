"""Agents and their episodes, and what the episodes are worth."""

from functools import partial
from typing import TYPE_CHECKING, Any

from learnloop_dataplane.agents.agent_registry import AgentRegistry
from learnloop_dataplane.assembly.shared_parts import SharedParts, Step
from learnloop_dataplane.concurrency.loop import TURN
from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.evaluators.scorers import Scorers
from learnloop_dataplane.experience.datasets import Datasets
from learnloop_dataplane.experience.explored_actions import ExploredActions
from learnloop_dataplane.experience.preferences import Preferences
from learnloop_dataplane.experience.trajectories import TrajectoryIntake
from learnloop_dataplane.registry.artifacts import Artifacts, bounded
from learnloop_dataplane.rewards.bias.bias_reader import BiasReader
from learnloop_dataplane.rewards.dry_run import DryRun
from learnloop_dataplane.rewards.human_feedback import UserFeedback
from learnloop_dataplane.rewards.published_policies import Policies
from learnloop_dataplane.rewards.reward_events import RewardOutbox
from learnloop_dataplane.rewards.reward_hacking_reader import SignalReader
from learnloop_dataplane.rewards.reward_tables import step_credits
from learnloop_dataplane.rewards.reward_worker import RewardWorker
from learnloop_dataplane.task_rewards.calculation import Calculator
from learnloop_dataplane.task_rewards.evaluation_worker import EvaluationWorker
from learnloop_dataplane.task_rewards.team_credits import TeamCredits
from learnloop_dataplane.warehouse.episode_shipper import Shipper

if TYPE_CHECKING:
    from learnloop_dataplane.evaluators.judge_client import JudgeClient
    from learnloop_dataplane.kubernetes.sandbox_jobs import JobSandbox

SHIP_SECONDS = 1.0
EVALUATION_SECONDS = 1.0
EVALUATED_AT_ONCE = 4
"""Namespaces whose episodes are evaluated at the same time."""


def open_judge(config: Config) -> "JudgeClient | None":
    """The judge that the configuration names."""
    if config.judge is None:
        return None
    from learnloop_dataplane.evaluators.judge_client import JudgeClient

    url, _, model = config.judge.partition("#")
    return JudgeClient(url, model, config.judge_key.get_secret_value() if config.judge_key else None)


def open_sandbox(shared: SharedParts) -> "JobSandbox | None":
    """The sandbox that the configuration names."""
    if shared.config.sandbox is None or shared.kube is None:
        return None
    from learnloop_dataplane.kubernetes.sandbox_jobs import JobSandbox

    namespace, _, image = shared.config.sandbox.partition("#")
    return JobSandbox(shared.kube, namespace, image)


class ExperienceParts:
    """What routes and background work need of agents, episodes and rewards."""

    def __init__(self, shared: SharedParts) -> None:
        db, bus, room, cipher = shared.db, shared.bus, shared.stream_room, shared.step_cipher
        self._shared = shared
        self._judge = open_judge(shared.config)
        self.agents = AgentRegistry(db, shared.arrived, cipher)
        stream = (bus, room) if bus is not None and room is not None else None
        self.intake = TrajectoryIntake(db, shared.users, shared.metrics, stream, shared.arrived, cipher)
        self.datasets = Datasets(db, shared.warehouse, cipher)
        self.explored = ExploredActions(db, cipher)
        self.preferences = Preferences(db, shared.users)
        self.policies = Policies(db, shared.arrived)
        self.signals = SignalReader(db)
        self.dry_run = DryRun(db, shared.warehouse, cipher)
        artifacts = Artifacts(db, shared.blobs, shared.config.max_artifact_bytes)
        self._scorers = Scorers(partial(bounded, artifacts))
        self.bias = BiasReader(db, cipher, self._scorers)
        self.opinions = UserFeedback(db, shared.users, shared.events, shared.arrived)
        self.credits = TeamCredits(db)
        sandbox = open_sandbox(shared)
        self.calculator = Calculator(db, self._judge, self.credits, sandbox, self._scorers)
        self._evaluations = EvaluationWorker(db, self.policies, self._judge, shared.arrived, sandbox, self._scorers)
        self._rewards = RewardWorker(db, self.policies, shared.metrics, announce=bus is not None, cipher=cipher)
        self._announcements = RewardOutbox(db, bus) if bus else None
        warehouse = shared.warehouse
        self._shipper = Shipper(db, warehouse, shared.metrics.warehoused) if warehouse is not None else None

    def start(self) -> None:
        """Begins the background work that is not done where something arrives."""
        # Apart from the other work: a judge may take a minute.
        self._shared.in_turns("evaluations", self._evaluations.run, every=EVALUATION_SECONDS, at_once=EVALUATED_AT_ONCE)
        if self._shipper is not None:
            self._shared.in_turns("warehouse", self._ship, every=SHIP_SECONDS)

    def steps(self) -> list[Step]:
        """What is done in a namespace where something arrived, in this order."""
        announce = [self._announcements.run] if self._announcements else []
        return [self._rewards.run, self.opinions.run, self.credits.run, self._shared.events.run, *announce]

    async def step_credits(self, namespace: str, trajectory_id: str) -> dict[str, Any] | None:
        """See `reward_tables.step_credits`."""
        return await step_credits(self._shared.db, namespace, trajectory_id, self._shared.step_cipher)

    async def close(self) -> None:
        """Hangs up."""
        await self._scorers.close()
        if self._judge is not None:
            await self._judge.close()

    async def _ship(self, namespace: str) -> int:
        assert self._shipper is not None
        try:
            return TURN if await self._shipper.run(namespace) else 0
        except Unavailable:
            self._shared.metrics.warehouse_failures.inc()
            raise
