"""Training of a language model: what it learns from, its beginning, its rounds, and its part of a checkpoint."""

import os
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from learnloop_api.kinds.language_model import LanguageModel
from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_api.wire import language, trajectory
from learnloop_environments.conversations.conversation_world import ConversationWorld
from learnloop_environments.errors import ConfigError
from learnloop_environments.make import make_world
from learnloop_trainer import baseline_policy, distributed, progress_reporter, recordings, training_order
from learnloop_trainer.evaluation import held_out_episodes
from learnloop_trainer.language import algorithms, base_model, lora, rows, sampler
from learnloop_trainer.language.chat_experience import Both, Plan, Played, Preferred, Recorded, episodes_of, pairs_of
from learnloop_trainer.language.messages_to_tokens import Chat
from learnloop_trainer.language.network import LanguageLearner, LanguageNetwork, Lessons, Setting
from learnloop_trainer.store.run_store import Arrays, Store, part, under
from learnloop_trainer.training_run import agent_logs, initial_policy, reward_rules, training_loop
from learnloop_trainer.training_run.validation import FIRST, JudgedModel, Validation

MOST_PREFERENCES = 100_000


def recorded_episodes(
    order: training_order.Order,
    store: Store,
    chat: Chat,
    read: recordings.ReadExperience,
    bounds: rows.Bounds = rows.ANY,
) -> list[rows.Episode]:
    """Turns that the order names, as episodes to learn from; `read` has a note of them. Raises ConfigError.

    `bounds`: what the run's model can read.
    """
    parameters = order.parameters
    log = agent_logs.read_log(order, store, parameters.max_recorded_turns)
    log.require_each(lambda one: not all(isinstance(step.observation, list) for step in one.steps), "text")
    logged = log.episodes
    finished = [episode for episode in logged if episode.status == "completed"]
    if len(finished) < len(logged):
        progress_reporter.say(
            f"{len(logged) - len(finished)} recorded conversations are left out: they ended in an error, or withdrawn"
        )
    policy = reward_rules.policy_in_force(order, store)
    rewards = reward_rules.step_rewards(policy, played=False, success_return=order.spec.data.success_return)
    learned = []
    for episodes in log.by_agent.values():  # a policy is stale by its own agent's newer ones
        rewarded = [_rewarded(one, rewards(one)) for one in episodes if one.status == "completed"]
        learned.append(episodes_of(rewarded, parameters.max_staleness, chat.digest, _base(order), bounds))
    usable = agent_logs.in_turn(learned)
    lacking = "" if order.spec.algorithm == "sft" else reward_rules.require_measured(order, policy, finished)
    steps = sum(int(episode.values.get("turns", 1)) for episode in usable)
    read.note = agent_logs.note_of(log, store, steps, reward_rules.credited(finished, policy), lacking)
    return usable


def _base(order: training_order.Order) -> str | None:
    """Digest of the base model that the run begins from."""
    model = order.spec.data.language_model
    return model.base.sha256 if model is not None else None


def _rewarded(episode: trajectory.LoggedEpisode, rewards: Sequence[float]) -> list[trajectory.Step]:
    return [step.model_copy(update={"reward": worth}) for step, worth in zip(episode.steps, rewards, strict=True)]


def preferred_pairs(
    order: training_order.Order,
    store: Store,
    chat: Chat,
    read: recordings.ReadExperience,
    bounds: rows.Bounds = rows.ANY,
) -> list[rows.Pair]:
    """Preferences of people, of a file or of the agents; `read` has a note of them. Raises ConfigError.

    `bounds`: what the run's model can read.
    """
    parameters, agents = order.parameters, agent_logs.agents_of(order)
    if parameters.recording:
        judged = {"": agent_logs.read_file(language.Preference, parameters.recording, store)}
    elif not agents:
        problem, fix = "is missing: no agent to learn from", "set it, or spec.hyperparameters.recording"
        raise ConfigError("spec.data.learningAgentRef", "", problem, fix)
    else:
        judged = agent_logs.pooled(store.preferences, agents, MOST_PREFERENCES, lambda _: 1)
    preferences = agent_logs.in_turn(judged.values())
    read.note = agent_logs.listed([one.preference_id for one in preferences], store, 2 * len(preferences), judged)
    by_agent = [pairs_of(some, chat, _base(order), bounds) for some in judged.values()]
    others = [[replace(pair, chosen=replace(pair.chosen, group=rows.OTHERS)) for pair in some] for some in by_agent[1:]]
    return agent_logs.in_turn([by_agent[0], *others])


SIDE_BY_SIDE = 512
"""Conversations that speak at the same time."""
ROLLOUTS, RECORDED, BOTH, PREFERENCES = "rollouts", "recorded", "both", "preferences"


SHOWN = ("loss", "kl", "entropy", "success", "margin")


@dataclass(slots=True)
class LanguageTraining:
    """Training of a language model; see training_loop.Training."""

    title: str
    learner: LanguageLearner
    base: base_model.Base
    chat: Chat
    world: ConversationWorld
    context: int
    begun_from: str = ""
    read: recordings.ReadExperience = field(default_factory=recordings.ReadExperience)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=progress_reporter.RECENT))
    curves: dict[str, float] = field(default_factory=dict)
    validation: Validation | None = None
    over: bool = False

    def own(self) -> Arrays:
        return {}

    def further(self) -> Arrays:
        return under("curves", {name: np.asarray(value, dtype=np.float64) for name, value in self.curves.items()})

    def restore(self, arrays: Arrays, place: training_order.Place) -> str:
        del place
        self.learner.restore(part(arrays, "shared"))
        self.curves = {name: float(value) for name, value in part(arrays, "curves").items()}
        return ""

    def iterate(self, run: training_loop.Run) -> None:
        before = self.learner.step
        update = self.learner.iterate()
        self.recent.extend(update.returns)
        self.curves = dict(update.curves)
        if self.validation is not None:
            mean = self.validation.note(self.learner.step, self.learner.step - before, run.reporter.alive)
            self.curves |= {} if mean is None else {"validation": mean}
        shown = {name: update.curves[name] for name in SHOWN if name in update.curves}
        run.reporter.progress(self.learner.step, self.recent, shown, points=self.curves)


def source_of(order: training_order.Order) -> str:
    """Source of the run's experience; raises ConfigError for one that its algorithm cannot learn from."""
    parameters = order.parameters
    experience, name, algorithm = parameters.experience, "spec.hyperparameters.experience", order.spec.algorithm
    if algorithm == "sft":
        if experience in (ROLLOUTS, BOTH):
            raise ConfigError(name, experience, "does not suit sft", "set recorded, or another algorithm")
        return RECORDED
    if parameters.algorithm.scores_answers or algorithm == "dpo":
        if experience not in (None, RECORDED):
            problem, fix = f"is not something that {algorithm} learns from", "remove it: people's preferences are read"
            raise ConfigError(name, experience, problem, fix)
        return PREFERENCES
    if experience is not None:
        return experience
    return RECORDED if parameters.recording else ROLLOUTS


def _refuse_cut_sampling(model: LanguageModel) -> None:
    sampling, place = model.sampling, f"{base_model.FIELD}.sampling"
    if sampling.top_p < 1 or sampling.top_k:
        name, value = ("topP", sampling.top_p) if sampling.top_p < 1 else ("topK", sampling.top_k)
        problem = "cuts the distribution, and the ratio of two cut ones is biased"
        raise ConfigError(f"{place}.{name}", value, problem, "set topP to 1 and topK to 0 where rollouts are learned")
    if not sampling.temperature:
        raise ConfigError(f"{place}.temperature", 0, "draws nothing to learn from", "set it above 0, e.g. to 1")


def network_of(
    parameters: Parameters,
    traits: algorithms.LanguageTraits,
    base: base_model.Base,
    seed: int,
    device: torch.device,
) -> LanguageNetwork:
    """The network that learns: all weights, or an adapter on the frozen base."""
    narrow = parameters.precision == "bfloat16"
    whole = parameters.weights == "full"
    dtype = torch.bfloat16 if narrow and not whole else torch.float32
    adapter = parameters.lora
    wanted = traits.base or bool(getattr(parameters, "kl_coefficient", 0.0))
    model = base.model(device, dtype)
    torch.manual_seed(seed)
    reference = torch.bfloat16 if narrow else torch.float32
    return LanguageNetwork(
        model,
        None if whole else lora.attach(model, adapter.layers, adapter.rank, adapter.alpha, seed),
        value_head=traits.values,
        reference=base.model(device, reference) if whole and wanted else None,
        bfloat16=narrow,
    )


@dataclass(frozen=True, slots=True)
class Opened:
    """The base model of an order, and how it speaks in the order's world."""

    base: base_model.Base
    world: ConversationWorld
    chat: Chat
    context: int


def opened(order: training_order.Order, cache: Path | None = None) -> Opened:
    """Raises ConfigError for what is not there, or not what the order says."""
    model, limit = order.spec.data.language_model, order.spec.data.max_steps_per_episode
    assert model is not None
    if limit is not None:
        problem, fix = "is not heeded by worlds that are talked to", "leave it out"
        raise ConfigError("spec.data.maxStepsPerEpisode", limit, problem, fix)
    base = base_model.opened(model, os.environ, cache or Path(tempfile.gettempdir()) / "learnloop-models")
    world = make_world(order.environment)
    chat = Chat(base.tokeniser, [tool.to_openai() for tool in model.tools] or world.tools, base.stops)
    return Opened(base, world, chat, base.context(model.context_length))


def begin_language(
    order: training_order.Order, group: distributed.Group, device: torch.device, store: Store, cache: Path | None = None
) -> LanguageTraining:
    """A training at step 0; raises ConfigError for what does not fit together."""
    spec, parameters, model = order.spec, order.parameters, order.spec.data.language_model
    traits = algorithms.ALGORITHMS[spec.algorithm]
    assert model is not None
    _refuse_unjudgeable(order)
    begun_with = opened(order, cache)
    base, world, chat, context = begun_with.base, begun_with.world, begun_with.chat, begun_with.context
    network = network_of(parameters, traits, base, spec.seed, device)
    read = recordings.ReadExperience()
    experience = _experience(order, group, store, chat, world, rows.Bounds(context, base.vocabulary), read)
    begun = initial_policy.begin_model_from(order, network, base, store)
    setting = Setting(network, experience, group, spec.seed, spec.total_steps)
    validation = _validation(order, group, world, chat, context, network)
    learner = traits.learner(parameters, setting)
    title = f"{spec.algorithm} ({getattr(parameters, 'weights', '')}) on {order.environment}"
    return LanguageTraining(title, learner, base, chat, world, context, begun, read, validation=validation)


def _refuse_unjudgeable(order: training_order.Order) -> None:
    """Raises ConfigError where a model is to be judged along its training and cannot be."""
    if order.spec.evaluation.while_training is None:
        return
    name, fix = "spec.evaluation.whileTraining", "leave it out"
    if order.parameters.algorithm.scores_answers:
        raise ConfigError(name, "(set)", "holds conversations, and a reward model holds none", fix)


def _validation(
    order: training_order.Order,
    group: distributed.Group,
    world: ConversationWorld,
    chat: Chat,
    context: int,
    network: LanguageNetwork,
) -> Validation | None:
    """Validation of the model along its training, where the order asks for it."""
    pauses, model = order.spec.evaluation.while_training, order.spec.data.language_model
    assert model is not None
    if pauses is None:
        return None
    proof = held_out_episodes.episodes(order)
    tasks = baseline_policy.HeldOutTasks(order, world, chat, proof.seed, group)
    drawn = baseline_policy.limits(model.sampling, chat, context)

    def hold() -> float:
        held = tasks.hold(network.sampling(), drawn, proof.first + FIRST, pauses.episodes)
        return float(np.mean([episode.reward for episode in held]))

    return Validation(pauses, JudgedModel(network, hold))


def _most_recorded(order: training_order.Order, parameters: Parameters) -> int | None:
    """Recorded episodes before the rollouts; None: all. A log grows turn by turn, a run's steps do not."""
    if not parameters.algorithm.plays:
        return None
    return max(parameters.batch_episodes, int(parameters.recorded_share * order.spec.total_steps))


def _experience(
    order: training_order.Order,
    group: distributed.Group,
    store: Store,
    chat: Chat,
    world: ConversationWorld,
    bounds: rows.Bounds,
    read: recordings.ReadExperience,
) -> Lessons:
    parameters, model, source = order.parameters, order.spec.data.language_model, source_of(order)
    assert model is not None
    if source == PREFERENCES:
        return Preferred(lambda: preferred_pairs(order, store, chat, read, bounds), group)
    plan = Plan(
        episodes=getattr(parameters, "batch_episodes", 0),
        group_size=parameters.group_size,
        recorded=_most_recorded(order, parameters) if source == BOTH else None,
    )
    fetch = lambda: recorded_episodes(order, store, chat, read, bounds)  # noqa: E731
    if source == RECORDED:
        return Recorded(fetch, plan, group)
    _refuse_cut_sampling(model)
    if order.spec.data.rewards == "policy":
        problem, fix = "is not known of rollouts, which the environment rewards", "set experience: recorded"
        raise ConfigError("spec.data.rewards", "policy", problem, fix)
    rollouts = sampler.Rollouts(order.environment, world, chat, order.spec.seed, SIDE_BY_SIDE)
    played = Played(rollouts, baseline_policy.limits(model.sampling, chat, bounds.context), plan, group)
    return Both(Recorded(fetch, plan, group), played) if source == BOTH else played
