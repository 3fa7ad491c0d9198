"""By which rewards a run learns: the environment's, or what a RewardPolicy makes of the same steps."""

from collections.abc import Callable, Iterable, Sequence

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.trajectory import LoggedEpisode
from learnloop_common.reward_rules.components import Episode, counting, described, without_values
from learnloop_common.reward_rules.step_rewards import Shares, as_played, divided
from learnloop_environments.errors import ConfigError
from learnloop_trainer.store import Store
from learnloop_trainer.training_order import Order

FIELD = "spec.data.rewards"
FIX = "log these values with the episodes, give the RewardPolicy a component that they have, or set it to environment"
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
        success_return: an episode with at least this return succeeded, where its log does not say; None: unknown.
    """
    if policy is None:
        return lambda episode: [step.reward for step in episode.steps]
    rule = as_played if played else divided

    def rewarded(episode: LoggedEpisode) -> list[float]:
        shares = Shares(episode.credited_to_others, episode.credited_by_others)
        return rule(policy, _measurable(episode, success_return), episode.last_observation, shares)

    return rewarded


def _measurable(episode: LoggedEpisode, success_return: float | None) -> Episode:
    log = [
        {"observation": one.observation, "action": one.action, "reward": one.reward, "terminated": one.terminated}
        for one in episode.steps
    ]
    values = {name: value for name, value in episode.values.items() if isinstance(value, int | float)}
    success = episode.success
    if success is None and success_return is not None:
        success = episode.episode_return >= success_return
    return Episode(episode.episode_return, success, len(log), values, log, scores=episode.scores)


def unmeasured(order: Order, policy: RewardPolicySpec | None, episodes: Sequence[LoggedEpisode]) -> tuple[bool, str]:
    """Whether the policy finds nothing at all in these episodes, and in words which components find no value there."""
    if policy is None or not episodes:
        return False, ""
    missing = without_values(policy, (_measurable(one, order.spec.data.success_return) for one in episodes))
    if not missing:
        return False, ""
    otherwise = policy.shaping is not None or credited(episodes, policy) > 0 or bool(policy.constraints)
    nothing = len(missing) == len(counting(policy)) and not otherwise
    named = order.reward_policy.name if order.reward_policy is not None else ""
    whose = f"RewardPolicy {named}".rstrip()
    return nothing, f"{whose} finds no value of {described(policy, missing)} in any of {len(episodes)} logged episodes"


def require_measured(order: Order, policy: RewardPolicySpec | None, episodes: Sequence[LoggedEpisode]) -> str:
    """As `unmeasured`, in words; raises ConfigError where the policy finds nothing at all."""
    nothing, reason = unmeasured(order, policy, episodes)
    if nothing:
        raise ConfigError(FIELD, "policy", f"would reward every step with 0: {reason}", FIX)
    return reason


def credited(episodes: Iterable[LoggedEpisode], policy: RewardPolicySpec | None) -> int:
    """How many of the episodes are rewarded by a part of a reward that several agents share."""
    if policy is None:
        return 0
    return sum((one.credited_to_others, one.credited_by_others) != (None, None) for one in episodes)
