"""Settings that the operator gives the two containers of a suite's Job."""

from typing import Annotated

from pydantic import AfterValidator, Field

from learnloop_api import names
from learnloop_api.wire.gate_reports import REPORT_FILE
from learnloop_common.settings import EnvironmentSettings

Url = Annotated[str, AfterValidator(lambda url: url.rstrip("/"))]
_JOB = "a suite runs in the Job that the operator makes for it"


class DeliverySettings(EnvironmentSettings):
    """Settings of the container that hands the report in."""

    model_deployment: str = Field(description=_JOB)
    gate_job: str = Field(description=_JOB)
    namespace: str = Field(description=_JOB)
    data_url: Url = Field(description=_JOB)
    gate_report: str = REPORT_FILE
    token_file: str = names.TOKEN_FILE


class SuiteSettings(EnvironmentSettings, env_prefix="LEARNLOOP_GATE_"):
    """Settings of the container that asks the candidate. `candidate` and `stable` are revisions."""

    suite: str = Field(description=_JOB)
    builtin: str = "garak"
    samples: int = Field(default=100, ge=1, le=100_000, description="set a number from 1 to 100000")
    deployment: str = Field(validation_alias="LEARNLOOP_MODEL_DEPLOYMENT", description=_JOB)
    candidate: str = Field(description=_JOB)
    candidate_url: Url = Field(description=_JOB)
    stable: str = ""
    stable_url: Url = ""
    seconds: float = Field(default=600.0, ge=0, le=1e7, description="set a number from 0 to 1e7")
    data: str = Field(default="", description="folder of .jsonl files; empty: the suite's own prompts")
    judge_url: Url = ""
    judge_model: str = ""
    judge_key: str = ""
    report: str = REPORT_FILE
    token_file: str = Field(default="", validation_alias=names.ENV_TOKEN_FILE)
