"""What the pod's environment says of the language model. Checked once: a wrong value is one clear sentence."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from learnloop_api.kinds.language_model import LanguageModel
from learnloop_serving.settings import ConfigurationError, Settings, read_settings

ENV_LANGUAGE_MODEL = "LEARNLOOP_LANGUAGE_MODEL"
ENV_UPSTREAM = "LEARNLOOP_UPSTREAM"
ENV_FALLBACK = "LEARNLOOP_FALLBACK"
ENV_AGENT = "LEARNLOOP_AGENT"
ENV_TOKENISER = "LEARNLOOP_TOKENISER_FOLDER"
ENV_TURNS = "LEARNLOOP_TURNS_FOLDER"
ENV_PINS = "LEARNLOOP_PIN_ACCOUNTS"
ENV_IDLE = "LEARNLOOP_SESSION_IDLE_SECONDS"
ENV_IN_FLIGHT = "LEARNLOOP_MOST_IN_FLIGHT"


class ServerSettings(BaseModel):
    """A model server.

    Attributes:
        kind: vllm and llama.cpp give tokens; openai gives text alone.
        model: what it calls the model; for llama.cpp without a meaning.
        adapter: vllm: name of the arm's adapter. llama.cpp: its number among those it was started with.
        adapter_folder: vllm: where the adapter lies, as the server sees it.
        adapters: llama.cpp: how many it was started with.
        key_file: a file with the bearer token it wants.
        processed_log_probs: vllm: it runs with --logprobs-mode processed_logprobs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["vllm", "llama.cpp", "openai"]
    url: str = Field(pattern=r"^https?://[^\s/]+[^\s]*$", max_length=2048)
    model: str = Field(default="default", min_length=1, max_length=256)
    adapter: str | int | None = None
    adapter_folder: str = ""
    adapters: int = Field(default=0, ge=0, le=256)
    key_file: Path | None = None
    processed_log_probs: bool = True
    first_seconds: float = Field(default=120.0, gt=0, le=3600)
    seconds: float = Field(default=600.0, gt=0, le=86_400)

    def key(self) -> str:
        """The bearer token; "" where it wants none."""
        return "" if self.key_file is None else self.key_file.read_text(encoding="utf-8").strip()


@dataclass(frozen=True)
class GatewaySettings:
    """One arm's gateway. Durations in seconds.

    Attributes:
        agent: whose experience the turns are; "": nothing is recorded.
        tokeniser: folder of tokeniser and chat template; None: the server gives text alone.
        turns: folder for turns that are not delivered yet.
        pin_accounts: service accounts, NAMESPACE/NAME, that may ask for an arm by name.
        callers may be anybody: then so may those who pin.
    """

    serving: Settings
    model: LanguageModel
    server: ServerSettings
    agent: str = ""
    fallback: ServerSettings | None = None
    tokeniser: Path | None = None
    turns: Path = Path("/tmp/learnloop-turns")
    pin_accounts: frozenset[str] = field(default_factory=frozenset)
    idle_seconds: float = 900.0
    most_in_flight: int = 256


def read_gateway_settings(env: Mapping[str, str] = os.environ) -> GatewaySettings:
    """Read and check the environment; raises ConfigurationError."""
    serving = read_settings(env)
    server = _server(env, ENV_UPSTREAM)
    if server is None:
        raise ConfigurationError(f"{ENV_UPSTREAM}: '' is empty: say which server runs the model, as JSON")
    tokeniser = env.get(ENV_TOKENISER, "")
    if not tokeniser and server.kind != "openai":
        raise ConfigurationError(f"{ENV_TOKENISER}: '' is empty: name the folder of the base model")
    pins = frozenset(name.strip() for name in env.get(ENV_PINS, "").split(",") if name.strip())
    return GatewaySettings(
        serving=serving,
        model=_model(env),
        server=server,
        agent=env.get(ENV_AGENT, ""),
        fallback=_server(env, ENV_FALLBACK),
        tokeniser=Path(tokeniser) if tokeniser else None,
        turns=Path(env.get(ENV_TURNS) or "/tmp/learnloop-turns"),
        pin_accounts=pins,
        idle_seconds=_number(env, ENV_IDLE, 900.0, 1.0, 86_400.0),
        most_in_flight=int(_number(env, ENV_IN_FLIGHT, 256, 1, 65_536)),
    )


def _model(env: Mapping[str, str]) -> LanguageModel:
    try:
        return LanguageModel.model_validate_json(env.get(ENV_LANGUAGE_MODEL, ""))
    except ValidationError as error:
        raise ConfigurationError(f"{ENV_LANGUAGE_MODEL}: {_first(error)}") from None


def _server(env: Mapping[str, str], variable: str) -> ServerSettings | None:
    text = env.get(variable, "")
    if not text:
        return None
    try:
        return ServerSettings.model_validate_json(text)
    except ValidationError as error:
        raise ConfigurationError(f"{variable}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'value'}: {first['msg']}"[:300]


def _number(env: Mapping[str, str], variable: str, default: float, low: float, high: float) -> float:
    text = env.get(variable, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ConfigurationError(f"{variable}: {text[:50]!r} is not valid: give a number from {low:g} to {high:g}")
    return value
