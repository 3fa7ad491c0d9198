"""By which rewards a run learns: the environment's, or what a RewardPolicy makes of the same steps."""

from collections.abc import Callable, Iterable

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.reward_rules.components import Episode
from learnloop_api.reward_rules.step_rewards import Shares, as_played, divided
from learnloop_api.wire.experience import LoggedEpisode
from learnloop_environments.errors import ConfigError
from learnloop_trainer.store import Store
from learnloop_trainer.training_order import Order

FIELD = "spec.data.rewards"
StepRewards = Callable[[LoggedEpisode], list[float]]


def policy_in_force(order: Order, store: Store | None) -> RewardPolicySpec | None:
    """The RewardPolicy that the run learns by; None: by the environment's rewards.

    Raises ConfigError when the order asks for one and names none; StoreRefused when the store does not have it.
    """
    if order.spec.data.rewards != "policy":
        return None
    wanted = order.reward_policy
    if wanted is None or store is None:
        fix = "let the operator start the run, which names the revision, or set rewardPolicy in the order"
        raise ConfigError(FIELD, "policy", "asks for a RewardPolicy, and the order names no revision of one", fix)
    return store.reward_policy(wanted.name, wanted.revision)


def step_rewards(policy: RewardPolicySpec | None, *, played: bool, success_return: float | None = None) -> StepRewards:
    """The reward of each step of a logged episode.

    Args:
        policy: by which RewardPolicy; None: the environment's own rewards, as they were recorded.
        played: as the steps of a simulator are rewarded, among which they come; else the whole reward is divided as
            the policy's credit assignment says, which looks at the whole episode.
        success_return: an episode with at least this return succeeded, where its log does not say; None: nobody says.
    """
    if policy is None:
        return lambda episode: [step.reward for step in episode.steps]
    rule = as_played if played else divided

    def rewarded(episode: LoggedEpisode) -> list[float]:
        log = [
            {"observation": one.observation, "action": one.action, "reward": one.reward, "terminated": one.terminated}
            for one in episode.steps
        ]
        values = {name: value for name, value in episode.values.items() if isinstance(value, int | float)}
        success = episode.success
        if success is None and success_return is not None:
            success = episode.episode_return >= success_return
        whole = Episode(episode.episode_return, success, len(log), values, log, scores=episode.scores)
        shares = Shares(episode.credited_to_others, episode.credited_by_others)
        return rule(policy, whole, episode.last_observation, shares)

    return rewarded


def credited(episodes: Iterable[LoggedEpisode], policy: RewardPolicySpec | None) -> int:
    """How many of the episodes are rewarded by a part of a reward that several agents share."""
    if policy is None:
        return 0
    return sum((one.credited_to_others, one.credited_by_others) != (None, None) for one in episodes)
