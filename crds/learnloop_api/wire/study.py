"""A study of the data plane: what is searched, the trials so far, and what the operator reports of them."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from learnloop_api.kinds.study import Pruner, SearchDimension
from learnloop_api.wire.base import MOST, Identifier, Name, WireModel

RUNGS = 10
"""A trial is looked at after each tenth of its steps, so that trials are compared at the same points."""

Value = bool | int | float | Annotated[str, Field(max_length=63)] | Annotated[list[int], Field(max_length=8)]
TrialNumber = Annotated[int, Field(ge=0, lt=1000)]


class StudyOrder(WireModel):
    """PUT /api/v1/training/studies/{job}: the same again changes nothing; another owner begins anew."""

    job: Name
    owner: Identifier = Field(description="uid of the TrainingJob: a deleted one of the same name had another study")
    trials: int = Field(ge=2, le=1000)
    space: list[SearchDimension] = Field(min_length=1, max_length=32)
    direction: Literal["maximize", "minimize"]
    seed: int = Field(ge=0, le=MOST)
    startup_trials: int = Field(ge=1, le=1000)
    pruner: Pruner


class Trial(WireModel):
    """One trial. PUT …/trials/{number} begins it, once; the same number always has the same parameters."""

    number: TrialNumber
    state: Literal["running", "complete", "pruned", "failed"]
    parameters: dict[str, Value] = Field(default_factory=dict, max_length=32)
    value: float | None = Field(default=None, description="objective; of a pruned one the last intermediate value")
    reported: int = Field(default=0, ge=0, lt=RUNGS, description="the last tenth of its steps with a value; 0: none")
    prune: bool = Field(default=False, description="it does badly: stop it")


class TrialProgress(WireModel):
    """PUT …/trials/{number}/progress: the return after some tenths of the steps."""

    rung: int = Field(ge=1, lt=RUNGS)
    value: float


class TrialResult(WireModel):
    """PUT …/trials/{number}/result: the end. The first one counts."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {"state": {"const": "complete"}, "value": {"type": "number"}}, "required": ["value"]},
                {"properties": {"state": {"enum": ["pruned", "failed"]}}},
            ]
        }
    )
    state: Literal["complete", "pruned", "failed"]
    value: float | None = Field(default=None, description="required with complete")


class StudyState(WireModel):
    """GET /api/v1/training/studies/{job}."""

    job: Name
    owner: Identifier
    trials: list[Trial] = Field(default_factory=list, max_length=1000)
    best: TrialNumber | None = Field(default=None, description="number of the best complete trial")
