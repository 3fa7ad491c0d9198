"""The parts of a process: the stores that all share, then experience and training with their background work."""

from collections.abc import Awaitable, Callable
from functools import partial

from learnloop_dataplane import data_keys, errors, metrics, privacy
from learnloop_dataplane.access import kubernetes_api, tokens
from learnloop_dataplane.agents.agent_registry import AgentRegistry
from learnloop_dataplane.audit import chain
from learnloop_dataplane.blobs import Blobs
from learnloop_dataplane.concurrency import background_loop, limits
from learnloop_dataplane.config import Config, WrappingKeys
from learnloop_dataplane.evaluators import evaluator, llm_judge, scorers
from learnloop_dataplane.experience import datasets, nats_workers, similar, trajectories
from learnloop_dataplane.nats.event_outbox import EventOutbox
from learnloop_dataplane.notifications import daily_reports, webhook_outbox
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.registry.artifacts import Artifacts, Keeping, bounded
from learnloop_dataplane.registry.deployments import Deployments, GateRecords
from learnloop_dataplane.rewards import (
    bias,
    dry_run,
    evaluator_scores,
    human_feedback,
    reward_hacking,
    reward_tables,
    reward_worker,
    team_credit,
)
from learnloop_dataplane.sandbox.job import JobSandbox
from learnloop_dataplane.training import runs, study_storage, training_jobs
from learnloop_dataplane.warehouse import ClickHouse, Shipper

Step = Callable[[str], Awaitable[int]]
"""Work on one namespace; returns how much was done."""


class SharedParts:
    """Opens nothing yet: the connections are made by `DataPlane.start`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.metrics = metrics.Metrics()
        self.db = Database(
            config.database_url,
            pool_size=config.pool_size,
            first=_logins(config) if config.database_is_own else None,
        )
        self.background = background_loop.Background(self.metrics, self.db.ready)
        self.arrivals: background_loop.Work | None = None
        keys = config.encryption_keys
        wrapping = WrappingKeys.parse(keys.get_secret_value()) if keys else None
        self.data_keys = data_keys.DataKeys(self.db, wrapping) if wrapping else None
        self.step_cipher = data_keys.StepCipher(self.data_keys)
        self.plain_blobs = Blobs(config.artifacts)
        self.blobs = data_keys.SealedBlobs(config.artifacts, self.data_keys) if self.data_keys else self.plain_blobs
        asks = config.auth != "none" and (config.roles == "rbac" or config.run_writers == "ranks")
        self.kube = kubernetes_api.KubeApi(config) if config.training_api or config.sandbox or asks else None
        self.authenticator = tokens.Authenticator(config)
        self.rate = limits.EpisodeRate(config.quotas, self.metrics)
        parts = (self.db, self.authenticator, self.metrics, self.rate, self.step_cipher)
        self.nats = nats_workers.NatsSide(config, *parts) if config.nats_url else None
        self.bus = self.nats.bus if self.nats else None
        self.stream_room = self.nats.room if self.nats else None
        self.notifications = webhook_outbox.Notifications(
            self.db,
            webhook_outbox.Webhook.parse(config.notifications),
            config.notifications_key_file,
            self.metrics,
        )
        self.reports = daily_reports.Reports(self.db, self.notifications)
        self.events = EventOutbox(self.db, self.bus, self.notifications.put)
        self.users = privacy.Users(self.db)
        self.sealer = chain.Sealer(self.db, chain.write if config.audit_log else None)
        warehouse = config.warehouse.get_secret_value() if config.warehouse else None
        self.warehouse = ClickHouse(warehouse, days=config.warehouse_days) if warehouse else None

    def arrived(self, namespace: str) -> None:
        """New work may be waiting in this namespace."""
        if self.arrivals is not None:
            self.arrivals.changed(namespace)

    def in_turns(self, name: str, *steps: Step, every: float, at_once: int = 1) -> background_loop.Work:
        """Runs these steps, one after the other, in turns of namespaces; a step that fails stops no other."""

        async def turn(namespace: str) -> int:
            return max([await self.background.attempt(step, namespace) for step in steps])

        work = background_loop.Work(turn, self.db.namespaces, every=every, at_once=at_once)
        self.background.turns(work, name)
        return work


def _logins(config: Config) -> Callable[[], Awaitable[None]]:
    from learnloop_dataplane.postgres.logins import keep  # 30 MiB of Alembic that most installations do without

    lines = config.lines("database_password")
    assert lines, "Config refuses database_is_own without a password"
    return partial(keep, config.dsn.get_secret_value(), lines)


SHIP_SECONDS = 1.0
EVALUATION_SECONDS = 1.0
EVALUATED_AT_ONCE = 4
"""Namespaces whose episodes are evaluated at the same time."""


def open_judge(config: Config) -> llm_judge.JudgeClient | None:
    if config.judge is None:
        return None
    url, _, model = config.judge.partition("#")
    return llm_judge.JudgeClient(url, model, config.judge_key.get_secret_value() if config.judge_key else None)


def open_sandbox(shared: SharedParts) -> JobSandbox | None:
    """The sandbox that the configuration names."""
    if shared.config.sandbox is None or shared.kube is None:
        return None
    namespace, _, image = shared.config.sandbox.partition("#")
    return JobSandbox(shared.kube, namespace, image)


class ExperienceParts:
    """Agents, episodes and rewards, for routes and background work."""

    def __init__(self, shared: SharedParts) -> None:
        db, bus, room, cipher = shared.db, shared.bus, shared.stream_room, shared.step_cipher
        self._shared = shared
        self._judge = open_judge(shared.config)
        self.agents = AgentRegistry(db, shared.arrived, cipher)
        stream = (bus, room) if bus is not None and room is not None else None
        self.intake = trajectories.TrajectoryIntake(db, shared.users, shared.metrics, stream, shared.arrived, cipher)
        self.datasets = datasets.Datasets(db, shared.warehouse, cipher)
        self.explored = datasets.ExploredActions(db, cipher)
        self.nearest = similar.NearestExperience(db, cipher)
        self.preferences = trajectories.Preferences(db, shared.users)
        self.policies = reward_tables.Policies(db, shared.arrived)
        self.signals = reward_hacking.SignalReader(db, self.policies)
        self.dry_run = dry_run.DryRun(db, cipher)
        artifacts = Artifacts(db, shared.blobs, shared.config.max_artifact_bytes)
        self._scorers = scorers.Scorers(partial(bounded, artifacts))
        self.bias = bias.BiasReader(db, cipher)
        whose = (db, shared.users, shared.events, shared.arrived, shared.metrics.agents)
        self.opinions = human_feedback.UserFeedback(*whose)
        self.credits = team_credit.TeamCredits(db)
        self._sandbox = open_sandbox(shared)
        self._evaluations = evaluator_scores.EvaluationWorker(db, self.policies, self.tools, shared.arrived)
        self._rewards = reward_worker.RewardWorker(
            db, self.policies, shared.metrics, announce=bus is not None, cipher=cipher
        )
        self._announcements = reward_worker.RewardOutbox(db, bus) if bus else None
        warehouse = shared.warehouse
        self._shipper = Shipper(db, warehouse, shared.metrics) if warehouse is not None else None

    def start(self) -> None:
        """Begins the background work that is not done where something arrives."""
        # Apart from the other work: a judge may take a minute.
        self._shared.in_turns("evaluations", self._evaluations.run, every=EVALUATION_SECONDS, at_once=EVALUATED_AT_ONCE)
        if self._shipper is not None:
            self._shared.in_turns("warehouse", self._ship, every=SHIP_SECONDS)

    def steps(self) -> list[Step]:
        """Steps in a namespace where something arrived, in this order."""
        announce = [self._announcements.run] if self._announcements else []
        return [self._rewards.run, self.opinions.run, self.credits.run, self._shared.events.run, *announce]

    def tools(self, namespace: str) -> evaluator.Tools:
        """The judge, the sandbox and the reward models, for the evaluators of a namespace."""
        return evaluator.Tools(self._judge, self._sandbox, partial(self._scorers.score, namespace), namespace)

    async def step_credits(self, namespace: str, trajectory_id: str) -> dict[str, object] | None:
        """See `reward_tables.step_credits`."""
        return await reward_tables.step_credits(self._shared.db, namespace, trajectory_id, self._shared.step_cipher)

    async def close(self) -> None:
        await self._scorers.close()
        if self._judge is not None:
            await self._judge.close()

    async def _ship(self, namespace: str) -> int:
        assert self._shipper is not None
        try:
            return background_loop.TURN if await self._shipper.run(namespace) else 0
        except errors.Unavailable:
            self._shared.metrics.warehouse_failures.inc()
            raise


STORES_SECONDS = 10.0  # between two looks at what nothing else may ask for long
SWEEP_SECONDS = 3600.0


class TrainingParts:
    """Training, for routes and background work."""

    def __init__(self, shared: SharedParts) -> None:
        config, db, blobs = shared.config, shared.db, shared.blobs
        self._shared = shared
        self.artifacts = Artifacts(db, blobs, config.max_artifact_bytes)
        self.keeping = Keeping(db, blobs, config.artifact_retention_days)
        publish = shared.bus.publish_best_effort if shared.bus else None
        self.runs = runs.Runs(db, blobs, shared.metrics, shared.events, shared.arrived, publish)
        self.studies = study_storage.StudyThreads(db, config.database_url)
        self.jobs = training_jobs.TrainingJobs(db, shared.kube if config.training_api else None)
        self.gates = GateRecords(db, self.artifacts)
        self.deployments = Deployments(db, shared.events, shared.arrived)
        self.approvals = daily_reports.Approvals(db, shared.notifications)

    def start(self) -> None:
        """Begins looking after the artifact store."""
        self._shared.background.repeat(self._shared.plain_blobs.sweep, "unfinished uploads", pause=SWEEP_SECONDS)
        self._shared.background.repeat(self.artifacts.look, "artifact store", pause=STORES_SECONDS)

    def close(self) -> None:
        """Takes no more studies."""
        self.studies.close()
