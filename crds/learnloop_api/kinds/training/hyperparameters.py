"""The table of hyperparameters: type, bounds and meaning of each, once for all algorithms that take it; and the model
of those that one algorithm takes.

`algorithms.ALGORITHMS` says which algorithm takes which of them, and its defaults.
"""

from dataclasses import dataclass
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, create_model
from pydantic.alias_generators import to_camel

from learnloop_api.kinds.base import Resource, Uri

Layers = list[Annotated[int, Field(ge=1, le=8192)]]
LayerName = Annotated[str, Field(min_length=1, max_length=63)]


class Curiosity(Resource):
    """Intrinsic curiosity (Pathak et al., 2017, arXiv 1705.05363): a reward for what could not be predicted."""

    scale: float = Field(default=0.1, gt=0, le=1000, description="Intrinsic reward for a squared error of 2 (eta).")
    features: int = Field(default=16, ge=1, le=1024, description="Numbers that describe an observation.")
    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam for both models.")
    hidden: Annotated[Layers, Field(min_length=1, max_length=8)] = Field(
        default=[64], description="Widths of the hidden layers of features and models."
    )


class Lora(Resource):
    """A low-rank adapter (Hu et al., 2021, arXiv 2106.09685): the base model stays as it is."""

    rank: int = Field(default=8, ge=1, le=512, description="Rank of the adapter.")
    alpha: float = Field(default=16.0, gt=0, le=4096, description="The adapter counts alpha / rank times.")
    layers: Annotated[list[LayerName], Field(min_length=1, max_length=32)] = Field(
        default=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        description="Linear layers that get one, by the last part of their name.",
    )


def _share(text: str) -> Any:
    return Field(ge=0, le=1, description=text)


def _positive(limit: float, text: str) -> Any:
    return Field(gt=0, le=limit, description=text)


def _weight(limit: float, text: str) -> Any:
    return Field(ge=0, le=limit, description=text)


def _count(limit: int, text: str, least: int = 1) -> Any:
    return Field(ge=least, le=limit, description=text)


class Parameters(Resource):
    """Every hyperparameter there is. The model of one algorithm (`Algorithm.model`) has those that it takes."""

    algorithm: ClassVar["Algorithm"]

    # The optimiser
    learning_rate: Annotated[float, _positive(1, "Step size of Adam (of language models: AdamW) at the start.")]
    learning_rate_schedule: Annotated[
        Literal["linear", "cosine", "constant"],
        Field(description="How the step size falls to 0 over totalSteps; constant: it stays."),
    ]
    warmup: Annotated[
        float, Field(ge=0, lt=1, description="Share of totalSteps over which the step size first rises from 0.")
    ]
    max_gradient_norm: Annotated[
        float, _positive(1000, "Gradients are clipped to this norm; without a default, they are not.")
    ]
    hidden: Annotated[
        Layers, Field(min_length=1, max_length=8, description="Widths of the hidden layers, input side first.")
    ]

    # Returns and exploration
    discount: Annotated[float, _share("Discount of future rewards (gamma); of language models, by token.")]
    gae_lambda: Annotated[float, _share("Lambda of generalised advantage estimation (arXiv 1506.02438).")]
    entropy_coefficient: Annotated[float, _weight(1, "Weight of the entropy bonus.")]
    value_coefficient: Annotated[float, _weight(100, "Weight of the value loss.")]
    epsilon_start: Annotated[float, _share("Share of random actions at the start.")]
    epsilon_end: Annotated[float, _share("Share of random actions once exploration is over.")]
    exploration_fraction: Annotated[
        float, _positive(1, "Share of totalSteps over which the share of random actions falls.")
    ]
    initial_temperature: Annotated[
        float, _positive(1000, "Weight of the entropy at the start (alpha); learned from there.")
    ]
    target_entropy_scale: Annotated[
        float, _weight(100, "The target entropy is minus this for each number in an action.")
    ]

    # Steps, updates and replay
    environments: Annotated[
        int,
        _count(
            4096,
            "Parallel environments (or teams) over all ranks together; at least one per rank, also where nothing is "
            "played. With maml, tasks × episodes.",
        ),
    ]
    horizon: Annotated[int, _count(65536, "Steps of each environment between updates.")]
    epochs: Annotated[int, _count(100, "Passes over the collected steps or episodes per update.")]
    minibatches: Annotated[
        int, _count(1024, "Parts of the collected steps per pass; with episodes, groups are never divided.")
    ]
    batch_size: Annotated[int, _count(65536, "Transitions or recorded steps per update over all ranks together.")]
    buffer_size: Annotated[
        int, _count(10_000_000, "Transitions in the replay buffer over all ranks together.", least=1000)
    ]
    learning_starts: Annotated[int, _count(10_000_000, "Environment steps before the first update.")]
    steps_per_update: Annotated[int, _count(65536, "Environment steps between updates.")]
    target_update: Annotated[int, _count(1_000_000, "Updates between copies to the target network.")]
    target_rate: Annotated[float, _positive(1, "Share of the networks that goes to their targets per update (tau).")]
    prioritized: Annotated[
        bool, Field(description="Replay transitions in proportion to their last error (arXiv 1511.05952).")
    ]
    priority_exponent: Annotated[float, _share("With prioritized: 0 samples uniformly, 1 in proportion to the error.")]
    importance_start: Annotated[float, _share("With prioritized: importance correction at the start; it rises to 1.")]
    local_batch_size: Annotated[
        int,
        _count(
            65536,
            "Where logged experience is mixed in: the run's own transitions per update, over all ranks together. "
            "Otherwise batchSize counts.",
        ),
    ]
    memory_batch_size: Annotated[
        int,
        _count(65536, "Logged transitions added to each update, over all ranks together; 0 reads no log.", least=0),
    ]

    # One algorithm each
    clip: Annotated[float, _positive(1, "Clip range of the probability ratio (epsilon).")]
    clip_end: Annotated[float | None, _positive(1, "The clip range narrows linearly to this; left out, it stays.")]
    dual_clip: Annotated[
        float | None,
        Field(
            ge=1,
            le=100,
            description="Where the advantage is negative, the objective is not below this times it (arXiv 1912.09729); "
            "left out, no such limit.",
        ),
    ]
    lagrangian_learning_rate: Annotated[
        float | None,
        _positive(
            1000,
            "The RewardPolicy's constraints hold on average over episodes, by multipliers that are learned; step size "
            "of their ascent, for rewards: policy. Left out, none.",
        ),
    ]
    normalise_observations: Annotated[
        bool,
        Field(
            description="Networks see observations less their running mean, in units of their running deviation; both "
            "are part of the exported policy."
        ),
    ]
    curiosity: Annotated[
        Curiosity | None,
        Field(description="Adds an intrinsic reward for what could not be predicted; left out, none."),
    ]
    embedding: Annotated[int, _count(1024, "Width of the mixing network.")]
    actor_learning_rate: Annotated[float, _positive(1, "Step size of Adam for the actor.")]
    noise_start: Annotated[float, _weight(10, "Deviation of the noise on actions (scaled to [-1, 1]) at the start.")]
    noise_end: Annotated[float, _weight(10, "The same at the end; it falls linearly.")]
    centralized: Annotated[
        bool,
        Field(description="Critics see all observations and actions; false: only the agent's own (independent DDPG)."),
    ]
    controller_discount: Annotated[
        float, _share("Discount on the way to a landmark; lower than discount: ways are shorter.")
    ]
    option_steps: Annotated[int, _count(100_000, "Steps after which an unreached landmark is given up.")]
    adaptation_rate: Annotated[float, _positive(10, "Step size of the inner steps (alpha).")]
    adaptation_steps: Annotated[int, _count(10, "Inner steps before a task is judged.")]
    episodes: Annotated[int, _count(1024, "Episodes of a task for each inner step.", least=2)]
    first_order: Annotated[bool, Field(description="Drops the second derivatives: faster, less exact.")]

    # From a log
    recording: Annotated[
        Uri | None,
        Field(
            description="File with one recorded trajectory as JSON on each line; left out, the newest trajectories of "
            "data.learningAgentRef."
        ),
    ]
    max_recorded_steps: Annotated[int, _count(10_000_000, "Maximum number of recorded steps, the newest of an agent.")]
    conservatism: Annotated[
        float, _weight(1000, "Weight of holding values down, against the temporal difference (alpha).")
    ]
    expectile: Annotated[
        float,
        Field(
            gt=0,
            lt=1,
            description="A state's value within those of its logged actions (tau): 0.5 their mean, near 1 the best.",
        ),
    ]
    inverse_temperature: Annotated[
        float,
        _weight(
            100,
            "How much the policy prefers better actions, in standard deviations of the advantage (beta); 0 imitates "
            "the log.",
        ),
    ]

    # Language models
    weights: Annotated[
        Literal["lora", "full"],
        Field(description="What learns: an adapter on the frozen base model, or all of its weights."),
    ]
    lora: Annotated[Lora, Field(description="The low-rank adapter (Hu et al., 2021, arXiv 2106.09685).")]
    weight_decay: Annotated[float, _weight(1, "Share of the weights that AdamW removes per step size.")]
    precision: Annotated[
        Literal["float32", "bfloat16"],
        Field(
            description="What layers compute in; log-probabilities, losses and the optimiser are float32 either way."
        ),
    ]
    tokens_per_batch: Annotated[int, _count(16_777_216, "Tokens per forward pass, padding included.", least=64)]
    experience: Annotated[
        Literal["rollouts", "recorded", "both"] | None,
        Field(
            description="rollouts: conversations the run holds itself in data.environment. recorded: turns of "
            "recording, or of data.learningAgentRef. both: the newest recorded ones once, then rollouts. Left out: "
            "recorded for sft and where recording is set, else rollouts."
        ),
    ]
    max_recorded_turns: Annotated[int, _count(10_000_000, "Maximum number of recorded turns, the newest of an agent.")]
    max_staleness: Annotated[
        int,
        _count(1000, "Recorded episodes are left out once more than this many later policies have spoken.", least=0),
    ]
    batch_episodes: Annotated[int, _count(65536, "Episodes or demonstrations per update over all ranks together.")]
    group_size: Annotated[int, _count(1024, "Conversations about the same task, compared with one another.")]
    min_reward: Annotated[
        float | None,
        Field(description="Only episodes with at least this reward are demonstrations; left out, all are."),
    ]
    batch_pairs: Annotated[int, _count(65536, "Pairs per update over all ranks together.")]
    beta: Annotated[float, _positive(100, "How strongly the base model holds (beta).")]
    nll_coefficient: Annotated[
        float,
        _weight(
            100,
            "Weight of the chosen answers' negative log-likelihood by token (arXiv 2404.19733): without it both "
            "answers may become unlikely.",
        ),
    ]
    recorded_share: Annotated[
        float,
        _positive(
            1,
            "With experience: both, at most this share of totalSteps are recorded episodes: the newest ones, or the "
            "first ones of recording. The rest are rollouts.",
        ),
    ]
    ratio_cap: Annotated[
        float, Field(ge=1, le=100, description="Importance weights of tokens are cut off here (arXiv 1802.01561).")
    ]
    sequence_ratio_limit: Annotated[
        float,
        Field(
            gt=1,
            le=100,
            description="An episode teaches nothing while the geometric mean of its ratios is above this, or below its "
            "inverse.",
        ),
    ]
    kl_coefficient: Annotated[float, _weight(100, "Weight of the divergence from the base model, the adapter off.")]
    clip_low: Annotated[float, Field(gt=0, lt=1, description="The ratio is clipped below at 1 minus this.")]
    clip_high: Annotated[float, _positive(10, "The ratio is clipped above at 1 plus this (arXiv 2503.14476).")]
    value_clip: Annotated[float, _positive(1000, "Maximum change of a value per update.")]
    scale_by_deviation: Annotated[
        bool, Field(description="Divide by the group's deviation; false weighs hard and easy tasks alike.")
    ]
    held_out_share: Annotated[
        float,
        Field(
            ge=0.05,
            le=0.5,
            description="Share of the pairs that is never learned from; on it the model is compared with people's "
            "preferences.",
        ),
    ]
    score_decay: Annotated[
        float,
        _weight(1, "Weight of the squares of the scores: pairs fix differences only, and this keeps scores near 0."),
    ]


Defaults = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm.

    Attributes:
        name: the value of spec.algorithm.
        summary: a few words for `kubectl explain`.
        defaults: the hyperparameters that it takes, by their name in Python, with their defaults.
        acts: the kinds of actions that it can learn; language models have none of these.
        team: it trains the agents of a team.
        values_actions: its network gives values of actions, which are not logits: softmax of them is a policy that was
            never trained.
        spreads: it learns how far numbers may stray, so its policy can draw them, and a log can judge them.
        from_log: it takes no step in an environment, and learns where there is none; totalSteps counts logged steps.
        language: it trains language models; totalSteps counts episodes, demonstrations or pairs.
        plays: an update is made of whole groups of conversations, which no two ranks share.
        scores_answers: it makes a reward model.
        engines: the programs that have it, the first by default.
        networks: policies of Stable-Baselines3 that engine sb3 has for it.
    """

    name: str
    summary: str
    defaults: Defaults
    acts: tuple[str, ...] = ()
    team: bool = False
    values_actions: bool = False
    spreads: bool = False
    from_log: bool = False
    language: bool = False
    plays: bool = False
    scores_answers: bool = False
    engines: tuple[str, ...] = ("own",)
    networks: tuple[str, ...] = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")

    @property
    def remembers_log(self) -> bool:
        """It mixes its own transitions with those that data.learningAgentRef has logged."""
        return "memory_batch_size" in self.defaults

    @property
    def fields(self) -> dict[str, str]:
        """The hyperparameters that it takes: their name in a TrainingJob and in Python."""
        return {to_camel(name): name for name in self.defaults}

    @property
    def model(self) -> type[Parameters]:
        """The model of its hyperparameters, with its defaults."""
        if self.name not in _MODELS:
            _MODELS[self.name] = _model(self)
        return _MODELS[self.name]

    def complete(self, given: Resource) -> Parameters:
        """The hyperparameters given, and its defaults for the others. Raises ValueError for one it does not take."""
        values = given.to_kube()
        foreign = sorted(set(values) - set(self.fields))
        if foreign:
            has = ", ".join(sorted(self.fields))
            raise ValueError(f"{self.name} does not take {', '.join(foreign)}: it takes {has}")
        return self.model.model_validate(values)


_MODELS: dict[str, type[Parameters]] = {}


def _model(one: Algorithm) -> type[Parameters]:
    hints = get_annotations(Parameters)
    fields: dict[str, Any] = {
        # sac alone does not clip gradients by default
        field: (Annotated[hints[field] | None, None] if default is None else hints[field], default)
        for field, default in one.defaults.items()
    }
    create: Any = create_model  # what it returns has the static type of the whole table
    made: type[Parameters] = create(f"{to_camel(one.name.replace('-', '_'))}Parameters", __base__=Resource, **fields)
    made.algorithm = one
    return made
