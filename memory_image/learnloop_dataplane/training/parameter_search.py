"""A search space in Optuna's terms, and its values back in ours."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import text

from learnloop_api.kinds.training.study import SearchDimension
from learnloop_api.wire.training_request import StudyOrder, StudyState, Trial, TrialProgress, TrialResult
from learnloop_dataplane.errors import ApiError


@contextmanager
def exclusive(storage: optuna.storages.RDBStorage, name: str) -> Iterator[None]:
    """One writer to a study at a time, over all replicas; the lock ends with the connection, whatever happens."""
    with storage.engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 1))"), {"name": name})
        yield


WORDS = {"true": True, "false": False}


def suggest(trial: optuna.Trial, dimension: SearchDimension) -> None:
    """Draws one parameter of a trial, unless it has it already; architectures are categories, written as JSON.

    Raises ValueError when the dimension has none of the four kinds of values.
    """
    name = dimension.parameter
    if (real := dimension.float_) is not None:
        trial.suggest_float(name, real.low, real.high, log=real.log)
    elif (whole := dimension.int_) is not None:
        trial.suggest_int(name, whole.low, whole.high, step=whole.step, log=whole.log)
    elif dimension.choices is not None:
        trial.suggest_categorical(name, list(dimension.choices))
    elif dimension.layers is not None:
        trial.suggest_categorical(name, [json.dumps(list(layers)) for layers in dimension.layers])
    else:
        raise ValueError(f"space.{name}: set one of float, int, choices and layers")


def values(space: Sequence[SearchDimension], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Optuna's values as a TrainingJob has them: lists of widths, switches, numbers and words."""
    result: dict[str, Any] = {}
    for dimension in space:
        if dimension.parameter not in parameters:
            continue
        value = parameters[dimension.parameter]
        if dimension.layers is not None:
            value = json.loads(value)
        elif dimension.choices is not None:
            value = WORDS.get(value, value)
        result[dimension.parameter] = value
    return result


ORDER, PRUNE, SPENT = "order", "prune", "spent"
STATES = {
    TrialState.RUNNING: "running",
    TrialState.WAITING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
ENDS = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


class Studies:
    """All studies in one storage. A study's name begins with its namespace, which isolates tenants."""

    def __init__(self, storage: optuna.storages.RDBStorage) -> None:
        self._storage = storage

    def put(self, namespace: str, order: StudyOrder) -> StudyState:
        """Begins the study. An older one of another owner is deleted.

        Raises:
            ApiError: 409, the same owner ordered something else before.
        """
        name = _name(namespace, order.job)
        with exclusive(self._storage, name):
            existing = self._find(name)
            if existing is not None and existing.owner != order.owner:
                optuna.delete_study(study_name=name, storage=self._storage)
                existing = None
            if existing is None:
                directions = [order.direction] if order.cost_tolerance is None else [order.direction, "minimize"]
                study = optuna.create_study(
                    storage=self._storage, study_name=name, directions=directions, sampler=_sampler(order, 0)
                )
                study.set_user_attr(ORDER, order.model_dump(mode="json", by_alias=True))
            elif existing != order:
                raise ApiError(
                    409,
                    "this study was begun with another search space; use a new TrainingJob",
                    field="job",
                    value=order.job,
                )
        return self.get(namespace, order.job)

    def get(self, namespace: str, job: str) -> StudyState:
        """All trials so far.

        Raises:
            ApiError: 404, unknown study.
        """
        order, study = self._open(namespace, job)
        trials = [_trial(order, trial) for trial in study.get_trials(deepcopy=False)]
        # Optuna's own front: no other trial is better in one objective and not worse in the other.
        costs = order.cost_tolerance is not None
        front = sorted((trials[one.number] for one in study.best_trials), key=_dearer) if costs else []
        best = _best(order, trials, front)
        numbers = [trial.number for trial in front]
        return StudyState(job=job, owner=order.owner, trials=trials, best=best.number if best else None, front=numbers)

    def ask(self, namespace: str, job: str, number: int) -> Trial:
        """The trial of this number, begun now or long ago: its parameters never change.

        Raises:
            ApiError: 404 as in `get`; 409, the one before has not begun, or all trials have.
        """
        with exclusive(self._storage, _name(namespace, job)):
            order, study = self._open(namespace, job, number)
            trials = study.get_trials(deepcopy=False)
            if number > len(trials) or number >= order.trials:
                why = f"the study has {len(trials)} of {order.trials} trials: ask for the next one"
                raise ApiError(409, why, field="number", value=str(number))
            trial = study.ask() if number == len(trials) else optuna.trial.Trial(study, trials[number]._trial_id)
            if number == len(trials) or trials[number].state is TrialState.RUNNING:
                # A process that died in between has left some parameters out; those that are there stay.
                for dimension in order.space:
                    suggest(trial, dimension)
            return _trial(order, study.get_trials(deepcopy=False)[number])

    def progress(self, namespace: str, job: str, number: int, progress: TrialProgress) -> Trial:
        """Keeps an intermediate value and lets the pruner look at it; the end of a finished trial stands."""
        with exclusive(self._storage, _name(namespace, job)):
            order, study = self._open(namespace, job, number)
            frozen = self._existing(study, number)
            # Optuna stops no trial early by one of two objectives.
            if (
                order.cost_tolerance is None
                and frozen.state is TrialState.RUNNING
                and progress.rung not in frozen.intermediate_values
            ):
                trial = optuna.trial.Trial(study, frozen._trial_id)
                trial.report(progress.value, progress.rung)
                if trial.should_prune():
                    trial.set_user_attr(PRUNE, True)
            return _trial(order, study.get_trials(deepcopy=False)[number])

    def result(self, namespace: str, job: str, number: int, result: TrialResult) -> Trial:
        """Keeps the end of a trial, once.

        Raises:
            ApiError: 404 as in `get`; 422, complete without a value, or without the cost that the study asks for.
        """
        if result.state == "complete" and result.value is None:
            raise ApiError(422, "a complete trial has a value; send it", field="value")
        with exclusive(self._storage, _name(namespace, job)):
            order, study = self._open(namespace, job, number)
            frozen = self._existing(study, number)
            sought = [result.value] if order.cost_tolerance is None else [result.value, result.cost]
            if result.state == "complete" and None in sought:
                raise ApiError(422, "a complete trial of this study has a cost; send it", field="cost")
            figures = [float(one) for one in sought if one is not None] if result.state == "complete" else None
            if result.spent is not None and not frozen.state.is_finished():
                optuna.trial.Trial(study, frozen._trial_id).set_user_attr(SPENT, result.spent.model_dump())
            study.tell(number, values=figures, state=ENDS[result.state], skip_if_finished=True)
            return _trial(order, study.get_trials(deepcopy=False)[number])

    def delete(self, namespace: str, job: str) -> None:
        name = _name(namespace, job)
        with exclusive(self._storage, name):
            if self._find(name) is not None:
                optuna.delete_study(study_name=name, storage=self._storage)

    def _find(self, name: str) -> StudyOrder | None:
        try:
            identity = self._storage.get_study_id_from_name(name)
        except KeyError:
            return None
        document: Any = self._storage.get_study_user_attrs(identity).get(ORDER)
        if document is None:  # its process died before it had written the order: as if it had not begun
            self._storage.delete_study(identity)
            return None
        return StudyOrder.model_validate(document)

    def _open(self, namespace: str, job: str, number: int = 0) -> tuple[StudyOrder, optuna.Study]:
        name = _name(namespace, job)
        order = self._find(name)
        if order is None:
            raise ApiError(404, "this job has no study; begin it with PUT", field="job", value=job)
        study = optuna.load_study(
            study_name=name, storage=self._storage, sampler=_sampler(order, number), pruner=_pruner(order)
        )
        return order, study

    def _existing(self, study: optuna.Study, number: int) -> FrozenTrial:
        trials = study.get_trials(deepcopy=False)
        if number >= len(trials):
            raise ApiError(404, "this trial has not begun; ask for it first", field="number", value=str(number))
        return trials[number]


def _name(namespace: str, job: str) -> str:
    return f"{namespace}/{job}"  # neither may contain a slash


def _sampler(order: StudyOrder, number: int) -> optuna.samplers.BaseSampler:
    """A sampler has no memory between requests, so each trial has a seed of its own."""
    return optuna.samplers.TPESampler(
        seed=(order.seed * 1009 + number) % 2**32, n_startup_trials=order.startup_trials, constant_liar=True
    )


def _pruner(order: StudyOrder) -> optuna.pruners.BasePruner:
    wanted = order.pruner
    if wanted.type == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=wanted.startup_trials, n_warmup_steps=wanted.warmup)
    if wanted.type == "successive-halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    return optuna.pruners.NopPruner()


def _dearer(trial: Trial) -> tuple[float, int]:
    return trial.cost or 0.0, trial.number


def _best(order: StudyOrder, trials: Sequence[Trial], front: Sequence[Trial]) -> Trial | None:
    """By the objective; with a cost, the cheapest of the front that is within the tolerance of it."""
    sign = 1.0 if order.direction == "maximize" else -1.0
    complete = ((trial.number, trial.value) for trial in trials if trial.state == "complete")
    worth = {number: sign * value for number, value in complete if value is not None}
    if not worth:
        return None
    most = max(worth.values())
    room = (order.cost_tolerance or 0.0) * (most - min(worth.values()))
    return next(trial for trial in front or trials if worth.get(trial.number, -math.inf) >= most - room)


def _trial(order: StudyOrder, frozen: FrozenTrial) -> Trial:
    sought = frozen.values if frozen.state is TrialState.COMPLETE else None
    value, cost = (*(sought or ()), None, None)[:2]
    if frozen.state is TrialState.PRUNED:
        value = frozen.intermediate_values[max(frozen.intermediate_values)] if frozen.intermediate_values else None
    return Trial.model_validate(
        {
            "number": frozen.number,
            "state": STATES[frozen.state],
            "parameters": values(order.space, frozen.params),
            "value": value if value is None or math.isfinite(value) else None,
            "cost": cost,
            "reported": max(frozen.intermediate_values, default=0),
            "prune": bool(frozen.user_attrs.get(PRUNE)),
            "spent": frozen.user_attrs.get(SPENT),
        }
    )
