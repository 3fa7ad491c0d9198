"""Settings of a gateway before a language model, read from the pod's environment."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from learnloop_api.kinds.language_model import LanguageModel
from learnloop_common.settings import EnvironmentSettings
from learnloop_serving.settings import Settings

ENV_TOKENISER = "LEARNLOOP_TOKENISER_FOLDER"


class ServerSettings(BaseModel):
    """A model server: vllm and llama.cpp give tokens, openai gives text alone.

    Attributes:
        model: the server's name of the model; llama.cpp ignores it.
        adapter: vllm: name of the arm's adapter, which is loaded from `adapter_folder` as the server sees it.
        key_file: a file with the server's bearer token.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["vllm", "llama.cpp", "openai"]
    url: str = Field(pattern=r"^https?://[^\s/]+[^\s]*$", max_length=2048)
    model: str = Field(default="default", min_length=1, max_length=256)
    adapter: str | None = None
    adapter_folder: str = ""
    key_file: Path | None = None

    def key(self) -> str:
        """The bearer token; empty if the server needs none."""
        return "" if self.key_file is None else self.key_file.read_text(encoding="utf-8").strip()


class GatewaySettings(EnvironmentSettings):
    """Configuration of one arm's gateway. Durations in seconds."""

    serving: Settings = Field(default_factory=Settings.read, validation_alias="policy_server_settings")
    model: LanguageModel = Field(validation_alias="LEARNLOOP_LANGUAGE_MODEL")
    server: ServerSettings = Field(
        validation_alias="LEARNLOOP_UPSTREAM", description="give the server that runs the model, as JSON"
    )
    fallback: ServerSettings | None = Field(default=None, validation_alias="LEARNLOOP_FALLBACK")
    agent: str = Field(default="", description="the LearningAgent that records the turns; empty: nothing is recorded")
    tokeniser: Path | None = Field(
        default=None, validation_alias=ENV_TOKENISER, description="folder of tokeniser and chat template"
    )
    turns: Path = Field(
        default=Path("/tmp/learnloop-turns"),
        validation_alias="LEARNLOOP_TURNS_FOLDER",
        description="folder of turns that are not delivered yet",
    )
    pin_accounts: str = Field(
        default="", description="service accounts, NAMESPACE/NAME by comma, that may choose an arm by name"
    )
    idle_seconds: float = Field(
        default=900.0,
        ge=1,
        le=86_400,
        validation_alias="LEARNLOOP_SESSION_IDLE_SECONDS",
        description="give a number from 1 to 86400",
    )

    @model_validator(mode="after")
    def _has_tokens(self) -> Self:
        if self.tokeniser is None and self.server.kind != "openai":
            raise ValueError(f"{ENV_TOKENISER}: '' is empty: name the folder of the base model")
        return self

    @property
    def accounts_that_pin(self) -> frozenset[str]:
        return frozenset(filter(None, (name.strip() for name in self.pin_accounts.split(","))))
