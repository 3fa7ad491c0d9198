"""The schema of spec.algorithm and spec.hyperparameters, with its rules: it follows from the table of algorithms."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, create_model
from pydantic.alias_generators import to_camel

from learnloop_api.kinds.base import Opaque, Resource, Rule
from learnloop_api.kinds.training.algorithms import ALGORITHMS, LANGUAGE, OWN
from learnloop_api.kinds.training.hyperparameters import Parameters


def _described(field: str, text: str) -> str:
    """The description of a hyperparameter with its defaults and the algorithms that take it."""
    by_default: dict[str, list[str]] = defaultdict(list)
    for one in ALGORITHMS.values():
        if field in one.defaults:
            default = one.defaults[field]
            by_default["" if default is None or isinstance(default, Resource) else str(default)].append(one.name)
    takers = [name for names in by_default.values() for name in names]
    few = "" if len(takers) == len(OWN) else f" Taken by {', '.join(takers)}."
    if len(by_default) == 1:
        (default,) = by_default
        return text + (f" Default {default}." if default else "") + few
    most = max(by_default, key=lambda default: len(by_default[default]))
    others = [f"{', '.join(names)} {default or 'none'}" for default, names in by_default.items() if default != most]
    return f"{text} Default {most}; {'; '.join(others)}.{few}"


def _given() -> dict[str, Any]:
    hints = get_annotations(Parameters)
    fields: dict[str, Any] = {}
    for name, info in Parameters.model_fields.items():
        text = _described(name, info.description or "")
        fields[name] = (Annotated[hints[name] | None, Field(description=text)], None)
    return fields


if TYPE_CHECKING:

    class Hyperparameters(Resource):
        """Hyperparameters of the algorithm, as a user sets them; those left out have the algorithm's defaults."""

        def __init__(self, **given: Any) -> None: ...

else:
    Hyperparameters = create_model(
        "Hyperparameters",
        __base__=Resource,
        __module__=__name__,
        __doc__="Hyperparameters of the algorithm. Those left out have the algorithm's defaults.",
        **_given(),
    )


@dataclass(frozen=True, slots=True)
class Relation:
    """A condition on several hyperparameters of some algorithms, with each default filled in.

    `holds` is CEL, in which {name} stands for the value of a hyperparameter and {?name} for whether it is set.
    """

    algorithms: tuple[str, ...]
    holds: str
    message: str
    field: str

    def rules(self) -> Iterator[Rule]:
        """One rule for the algorithms that have the same defaults."""
        names = [name for name in re.findall(r"{(\w+)}", self.holds)]
        alike: dict[tuple[Any, ...], list[str]] = defaultdict(list)
        for algorithm in self.algorithms:
            alike[tuple(ALGORITHMS[algorithm].defaults[name] for name in names)].append(algorithm)
        for defaults, algorithms in alike.items():
            holds = re.sub(r"{\?(\w+)}", lambda match: f"has({_path(match[1])})", self.holds)
            for name, default in zip(names, defaults, strict=True):
                value = f"self.hyperparameters.?{to_camel(name)}.orValue({_literal(default)})"
                holds = holds.replace(f"{{{name}}}", value if default is not None else _path(name))
            yield Rule(f"!{_one_of(algorithms)} || {holds}", self.message, self.field)


def _path(name: str) -> str:
    return f"self.hyperparameters.{to_camel(name)}"


def _literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def _one_of(algorithms: Iterable[str]) -> str:
    return f"(self.algorithm in [{','.join(repr(name) for name in algorithms)}])"


def _taking(*names: str) -> tuple[str, ...]:
    return tuple(one.name for one in ALGORITHMS.values() if all(name in one.defaults for name in names))


RELATIONS = (
    Relation(
        ("ppo",),
        "{minibatches} <= {environments} * {horizon}",
        "an update has environments × horizon steps, fewer than minibatches: lower minibatches or raise those",
        ".hyperparameters.minibatches",
    ),
    Relation(
        ("ppo",),
        "!{?clip_end} || {clip_end} <= {clip}",
        "clipEnd must not be above clip: the range only narrows",
        ".hyperparameters.clipEnd",
    ),
    Relation(
        _taking("epsilon_end"),
        "{epsilon_end} <= {epsilon_start}",
        "epsilonEnd must not be above epsilonStart: exploration only falls",
        ".hyperparameters.epsilonEnd",
    ),
    Relation(
        _taking("batch_size", "buffer_size"),
        "{batch_size} <= {buffer_size}",
        "batchSize must not be above bufferSize",
        ".hyperparameters.batchSize",
    ),
    Relation(
        _taking("learning_starts"),
        "{learning_starts} <= {buffer_size}",
        "learningStarts must not be above bufferSize",
        ".hyperparameters.learningStarts",
    ),
    Relation(
        ("maml",),
        "{environments} % {episodes} == 0",
        "environments are tasks × episodes: make it a multiple of episodes",
        ".hyperparameters.environments",
    ),
    Relation(
        _taking("kl_coefficient"),
        "{batch_episodes} % {group_size} == 0",
        "batchEpisodes are groups × groupSize: make it a multiple of groupSize",
        ".hyperparameters.batchEpisodes",
    ),
    Relation(
        _taking("kl_coefficient"),
        "{minibatches} * {group_size} <= {batch_episodes}",
        "an update has batchEpisodes / groupSize groups, fewer than minibatches: lower minibatches or groupSize",
        ".hyperparameters.minibatches",
    ),
    Relation(
        _taking("environments"),
        "{environments} > self.workers",
        "every rank steps environments of its own: hyperparameters.environments must be at least 1 + workers; raise "
        "it, or lower workers",
        ".workers",
    ),
)


def _foreign() -> Iterator[Rule]:
    """Refuses hyperparameters that the algorithm does not take: one rule for those with the same takers."""
    by_takers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in Parameters.model_fields:
        by_takers[_taking(name)].append(name)
    for takers, names in by_takers.items():
        if len(takers) < len(OWN):
            given = " || ".join(f"has({_path(name)})" for name in names)
            given = f"({given})" if len(names) > 1 else given
            fields = ", ".join(map(to_camel, names))
            message = f"{fields}: only with algorithm {' or '.join(takers)}; remove it, or change algorithm"
            yield Rule(f"!{given} || self.algorithm in [{','.join(map(repr, takers))}]", message, ".hyperparameters")


if TYPE_CHECKING:
    AlgorithmName = str
else:
    AlgorithmName = Literal[tuple(ALGORITHMS)]


OTHERS = [name for name in ALGORITHMS if name not in OWN]
FOREIGN = f"(has(self.engine) ? self.engine != 'own' : self.algorithm in {OTHERS})"
"""CEL: another program than learnloop's own learners trains."""
BY_SB3 = f"(has(self.engine) ? self.engine == 'sb3' : self.algorithm in {OTHERS} && self.algorithm != 'custom')"
"""CEL: that is Stable-Baselines3."""


def _engines() -> Rule:
    """One rule: the engine named has the algorithm."""
    sb3, trl = ([name for name, one in ALGORITHMS.items() if engine in one.engines] for engine in ("sb3", "trl"))
    holds = f"self.engine == 'own' ? !(self.algorithm in {OTHERS}) : self.engine == 'sb3' ? self.algorithm in {sb3}"
    holds += f" : self.engine == 'trl' ? self.algorithm in {trl}"
    message = "this engine does not have the algorithm: leave engine out, or set algorithm to one that it has"
    return Rule(f"!has(self.engine) || ({holds} : self.algorithm == 'custom')", message, ".engine")


class Recipe(Resource):
    """The algorithm of a run, its hyperparameters, and the program that trains."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        *_foreign(),
        *(rule for relation in RELATIONS for rule in relation.rules()),
        _engines(),
        Rule(
            f"!has(self.settings) || {FOREIGN}",
            "settings are an engine's: use hyperparameters, or set engine to the one that takes them",
            ".settings",
        ),
    )

    engine: Literal["own", "sb3", "trl", "image"] | None = Field(
        default=None,
        description="The program that trains. own: learnloop's own learners. sb3: Stable-Baselines3 and sb3-contrib. "
        "trl: TRL, for language models. "
        "image: the program pod.command in pod.image, for algorithm custom. Left out, own where it has the algorithm, "
        "else the one that has it.",
    )
    settings: Opaque | None = Field(
        default=None,
        description="Settings of the engine, as it names them: sb3 and trl take the arguments of their algorithm, "
        "an image what it likes.",
    )

    algorithm: AlgorithmName = Field(description=" ".join(f"{one.name}: {one.summary}." for one in ALGORITHMS.values()))
    hyperparameters: Hyperparameters = Field(
        default_factory=Hyperparameters,
        description="Hyperparameters of the algorithm; those left out have its defaults.",
    )

    @property
    def trained_by(self) -> str:
        return self.engine or ALGORITHMS[self.algorithm].engines[0]

    @property
    def engine_reason(self) -> str:
        """The engine in force, and why it is that one."""
        if self.engine is not None:
            return f"{self.engine}: spec.engine names it"
        has = "has" if "own" in ALGORITHMS[self.algorithm].engines else "does not have"
        return f"{self.trained_by}: own {has} {self.algorithm}"


class Continuous(Resource):
    """The rank stays after the run. Each further trigger is an update: a revision with a proof of its own."""

    steps: int = Field(ge=1, le=10_000_000_000, description="Environment steps of each update.")
    max_kl: float = Field(
        default=0.1,
        gt=0,
        le=100,
        description="Mean KL divergence of an update from the policy that serves, in nats, at most. Policies that do "
        "not draw their actions have none.",
    )


class ContinuousRun(Continuous):
    """Updates of one run."""

    update: int = Field(default=0, ge=0, le=1_000_000, description="Newest update that is wanted; 0: none yet.")


NOT_CONTINUOUS = (
    f"self.workers > 0 || has(self.study) || has(self.deadlineSeconds) || {FOREIGN}"
    " || has(self.safety) && has(self.safety.fallbackPolicy)"  # it makes an update's KL from what serves infinite
    f" || self.algorithm in {list(LANGUAGE)}"
)
"""CEL: no rank of such a run can stay."""
CONTINUOUS_FIX = (
    "one rank of engine own stays, for a policy of numbers: set workers to 0, remove study, deadlineSeconds and "
    "safety.fallbackPolicy"
)
