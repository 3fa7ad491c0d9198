"""The order of this rank, read from its environment and checked."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import Field, ValidationError

from learnloop_api import names
from learnloop_api.kinds import base, language_model, training_job
from learnloop_api.kinds.training import algorithms, evaluation
from learnloop_api.wire.base import Name
from learnloop_api.wire.training import UpdateOrder
from learnloop_environments import user_environment
from learnloop_environments.errors import ConfigError

VARIABLE = "LEARNLOOP_TRAINING_SPEC"
MAX_BYTES = 1 << 20


class RewardPolicyRevision(base.Resource):
    """A published RewardPolicy."""

    name: Name
    revision: Annotated[str, Field(min_length=1, max_length=64)]


class Order(base.Resource):
    """One training run: the document in LEARNLOOP_TRAINING_SPEC."""

    job: Name
    agent: Name | None = None
    attempt: int = Field(default=0, ge=0)
    spec: training_job.TrainingJobSpec
    baseline_uri: Annotated[str, Field(max_length=2048)] | None = None
    baseline_sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] | None = None
    reward_policy: RewardPolicyRevision | None = None
    update: UpdateOrder | None = None
    """Of a rank that stays; None: the run itself."""
    fallback: bytes | None = Field(default=None, exclude=True)
    """File of the shield's fallback policy, once it was read."""

    @property
    def number(self) -> int:
        """Number of the update; 0 for the run itself."""
        return self.update.number if self.update else 0

    @property
    def parameters(self) -> algorithms.Parameters:
        """Hyperparameters of the chosen algorithm, defaults filled in."""
        return algorithms.ALGORITHMS[self.spec.algorithm].complete(self.spec.hyperparameters)

    @property
    def logged_share(self) -> float:
        """Of the logged episodes, how many prove a run without an environment."""
        share = self.spec.evaluation.logged_share
        return evaluation.LOGGED_SHARE if share is None else share

    @property
    def environment(self) -> str:
        """The name of the one that is played; raises ConfigError where there is none."""
        name = self.spec.data.environment
        if name is None:
            raise ConfigError("spec.data.environment", "", "is missing, and this run plays it", "name it")
        return name

    @property
    def shares(self) -> int:
        """Units of work that ranks divide: environments, groups of conversations, or pairs."""
        parameters: Any = self.parameters
        if self.spec.trained_by in ("sb3", "image"):
            return MOST_RANKS
        if not parameters.algorithm.language:
            return int(parameters.environments)
        if hasattr(parameters, "batch_pairs"):
            return int(parameters.batch_pairs)
        episodes = int(parameters.batch_episodes)
        return episodes // int(parameters.group_size) if parameters.algorithm.plays else episodes

    def widest_layer(self, environ: Mapping[str, str]) -> int:
        """Width of the network's widest layer; of a language model as far as config.json says it, else a large one."""
        model = self.spec.data.language_model
        if self.spec.trained_by in ("sb3", "image"):
            return UNKNOWN_WIDTH
        if model is None:
            return max(self.parameters.hidden)
        folder = model_folder(model, environ)
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder else {}
            return max(int(config.get(key, 0)) for key in ("hidden_size", "intermediate_size")) or UNKNOWN_WIDTH
        except (OSError, ValueError, AttributeError, TypeError):
            return UNKNOWN_WIDTH


MAY_CHANGE = {"workers", "suspend", "ttl_seconds_after_finished"}
"""Of a TrainingJob's spec while it runs."""
ELSEWHERE = {"pod", "queue", "backend"}
"""Place of a run; the operator keeps it from the order."""


def recipe_sha256(order: Order) -> str:
    """SHA-256 over the order and the code of the user's own environment.

    Equal for every attempt of a run, whatever its number of ranks; any other difference counts: of a
    hyperparameter, the filter, the rewards, the evaluation, the policy to beat. What a default stands for is part.
    Of a run whose rank stays, the policy to beat does not count: its own may serve when the rank begins again.
    """
    spec = order.spec.model_dump(mode="json", exclude=MAY_CHANGE | ELSEWHERE)
    spec["parameters"] = order.parameters.model_dump(mode="json")
    if order.spec.trained_by == "image":
        spec["program"] = [order.spec.pod.image, order.spec.pod.command]
    elsewhere = set() if order.update else {"update"}
    if order.spec.continuous is not None and not order.update:
        elsewhere |= {"baseline_uri", "baseline_sha256"}
    fields = order.model_dump(mode="json", exclude={"attempt", "spec"} | elsewhere)
    facts = fields | {"spec": spec, "code": user_environment.fingerprint(os.environ)}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


UNKNOWN_WIDTH = 4096
MOST_RANKS = 4096


def model_folder(model: language_model.LanguageModel, environ: Mapping[str, str]) -> Path | None:
    """Folder of the base model in this pod; None where it has to be fetched first."""
    parts = urlsplit(model.base.uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    volume = environ.get(names.ENV_BASE_MODEL, names.BASE_MODEL_DIRECTORY)
    return Path(volume) if parts.scheme in {"pvc", "oci"} else None


@dataclass(frozen=True, slots=True)
class Place:
    """This process among its peers, as torch.distributed's variables say, which the backend sets."""

    rank: int = 0
    size: int = 1
    master: str = "127.0.0.1"
    port: int = 23456

    def share(self, count: int) -> range:
        """The contiguous part of `count` numbered things that belongs to this rank; sizes differ by at most one."""
        return range(count * self.rank // self.size, count * (self.rank + 1) // self.size)


def read_order(environ: Mapping[str, str]) -> Order:
    """The order of this run; raises ConfigError with field, value and fix."""
    text = environ.get(VARIABLE, "")
    if not text:
        raise ConfigError(VARIABLE, text, "is empty", "start this image through a TrainingJob, or set the variable")
    if len(text) > MAX_BYTES:
        raise ConfigError(VARIABLE, f"{len(text)} characters", "is too long", f"keep it below {MAX_BYTES}")
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError(VARIABLE, text, f"is not JSON ({error})", "send one JSON object") from None
    try:
        order = Order.model_validate(document)
    except ValidationError as error:
        raise _explain(error) from None
    _refuse_foreign_parameters(order)
    _refuse_half_a_language_model(order)
    _require_one_world(order)
    return order


def _explain(error: ValidationError) -> ConfigError:
    first: Any = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or VARIABLE
    more = f" ({error.error_count() - 1} more problems follow)" if error.error_count() > 1 else ""
    if first["type"] == "missing":
        return ConfigError(field, "", "is missing", f"set it in the TrainingJob{more}")
    problem = f"is refused: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return ConfigError(field, first["input"], problem, f"correct it in the TrainingJob{more}")


def _refuse_foreign_parameters(order: Order) -> None:
    given, taken = order.spec.hyperparameters.to_kube(), algorithms.ALGORITHMS[order.spec.algorithm].fields
    for foreign in sorted(set(given) - set(taken)):
        raise ConfigError(
            f"spec.hyperparameters.{foreign}",
            given[foreign],
            f"is not a hyperparameter of {order.spec.algorithm}",
            f"remove it, or change the algorithm; it takes {', '.join(sorted(taken))}",
        )


def _refuse_half_a_language_model(order: Order) -> None:
    spoken, algorithm = order.spec.data.language_model is not None, order.spec.algorithm
    if order.parameters.algorithm.language and not spoken:
        problem, fix = f"is missing: {algorithm} trains a language model", "name the base model, or another algorithm"
        raise ConfigError("spec.data.languageModel", "", problem, fix)
    if spoken and not order.parameters.algorithm.language and algorithm != "custom":
        problem, fix = (
            f"is not something that {algorithm} trains",
            f"set algorithm to one of {', '.join(algorithms.LANGUAGE)}",
        )
        raise ConfigError("spec.data.languageModel", "(set)", problem, fix)


def _require_one_world(order: Order) -> None:
    data = order.spec.data
    if data.environment is None and data.spaces is None:
        problem = "is missing: nothing says what is seen and done"
        raise ConfigError("spec.data.environment", "", problem, "set it, or spec.data.spaces where there is only a log")
    if data.environment is not None and data.spaces is not None:
        raise ConfigError("spec.data.spaces", data.spaces, "is for runs without an environment", "remove it")


def _number(environ: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = environ.get(name, str(default))
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ConfigError(name, text, f"is not a whole number from {low} to {high}", "let the backend set it")
    return int(text)


def read_place(environ: Mapping[str, str], environments: int) -> Place:
    """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; raises ConfigError when they do not fit together."""
    size = _number(environ, "WORLD_SIZE", 1, 1, MOST_RANKS)
    rank = _number(environ, "RANK", 0, 0, size - 1)
    if environments < size:
        raise ConfigError(
            "environments",
            environments,
            f"leaves some of the {size} ranks without work",
            f"set it to at least {size} or ask for fewer workers",
        )
    master = environ.get("MASTER_ADDR", "127.0.0.1")
    return Place(rank, size, master, _number(environ, "MASTER_PORT", 23456, 1, 65535))
