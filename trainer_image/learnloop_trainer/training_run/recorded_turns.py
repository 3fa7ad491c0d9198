"""Recorded turns of language models, and people's preferences among them."""

from collections.abc import Sequence

from pydantic import ValidationError

from learnloop_api.wire.language import Preference
from learnloop_api.wire.trajectory import LoggedEpisode, Step
from learnloop_environments.errors import ConfigError
from learnloop_trainer.language.chat import Chat
from learnloop_trainer.language.experience import episodes_of, pairs_of
from learnloop_trainer.language.rows import ANY, Bounds, Episode, Pair
from learnloop_trainer.manifest.baseline_policy import fetch
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.recordings import ReadExperience
from learnloop_trainer.store import Store
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.logged_experience import listed, logged_episodes, note_of
from learnloop_trainer.training_run.reward_rules import credited, policy_in_force, require_measured, step_rewards

MOST_PREFERENCES = 100_000


def recorded_episodes(
    order: Order, store: Store, chat: Chat, read: ReadExperience, bounds: Bounds = ANY
) -> list[Episode]:
    """Turns that the order names, as episodes to learn from; `read` has a note of them. Raises ConfigError.

    `bounds`: what the run's model can read.
    """
    parameters = order.parameters
    logged, agent, selection = logged_episodes(order, store, parameters.max_recorded_turns)
    finished = [episode for episode in logged if episode.status == "completed"]
    if len(finished) < len(logged):
        say(f"{len(logged) - len(finished)} recorded conversations are left out: they ended in an error, or withdrawn")
    policy = policy_in_force(order, store)
    rewards = step_rewards(policy, played=False, success_return=order.spec.data.success_return)
    rewarded = [_rewarded(episode, rewards(episode)) for episode in finished]
    usable = episodes_of(rewarded, parameters.max_staleness, chat.digest, _base(order), bounds)
    lacking = "" if order.spec.algorithm == "sft" else require_measured(order, policy, finished)
    steps = sum(int(episode.values.get("turns", 1)) for episode in usable)
    read.note = note_of(logged, store, steps, agent, selection, credited(finished, policy), lacking)
    return usable


def _base(order: Order) -> str | None:
    """Digest of the base model that the run begins from."""
    model = order.spec.data.language_model
    return model.base.sha256 if model is not None else None


def _rewarded(episode: LoggedEpisode, rewards: Sequence[float]) -> list[Step]:
    return [step.model_copy(update={"reward": worth}) for step, worth in zip(episode.steps, rewards, strict=True)]


def preferred_pairs(order: Order, store: Store, chat: Chat, read: ReadExperience, bounds: Bounds = ANY) -> list[Pair]:
    """Preferences of people, of a file or of the agent; `read` has a note of them. Raises ConfigError.

    `bounds`: what the run's model can read.
    """
    parameters, agent = order.parameters, order.spec.data.learning_agent_ref
    named = "spec.hyperparameters.recording"
    if parameters.recording:
        preferences = _preferences_in(fetch(parameters.recording, store, named, FILE_FIX), parameters.recording, named)
    elif agent is None:
        fix = f"set it, or {named}"
        raise ConfigError("spec.data.learningAgentRef", "", "is missing: whose preferences are learned?", fix)
    else:
        preferences = store.preferences(agent.name, MOST_PREFERENCES)
    note = listed([one.preference_id for one in preferences], store, 2 * len(preferences))
    read.note = note.model_copy(update={"agent": agent.name if agent and not parameters.recording else None})
    return pairs_of(preferences, chat, _base(order), bounds)


FILE_FIX = "point it to a file with one preference as JSON on each line"


def _preferences_in(body: bytes, uri: str, named: str) -> list[Preference]:
    preferences: list[Preference] = []
    for number, line in enumerate(body.splitlines(), 1):
        try:
            preferences.append(Preference.model_validate_json(line))
        except ValidationError as error:
            problem = f"line {number} is not a preference ({error.errors()[0]['msg']})"
            raise ConfigError(named, uri, problem, FILE_FIX) from None
    return preferences
