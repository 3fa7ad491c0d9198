"""Settings of a process: one pydantic-settings model, read from LEARNLOOP_* environment variables."""

from typing import Self

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError


class ConfigurationError(ValueError):
    """An environment variable is missing or invalid; the message names the variable, the value and the fix."""


class EnvironmentSettings(BaseSettings):
    """Base of settings. A field's variable is LEARNLOOP_<FIELD> or its alias; its description is the fix."""

    model_config = SettingsConfigDict(
        env_prefix="LEARNLOOP_", env_ignore_empty=True, extra="ignore", frozen=True, populate_by_name=True
    )

    @classmethod
    def read(cls) -> Self:
        """The settings of this process; raises ConfigurationError."""
        try:
            return cls()
        except ValidationError as error:
            raise ConfigurationError(cls._sentence(error)) from None
        except SettingsError as error:
            raise ConfigurationError(f"{error}: give JSON") from None

    @classmethod
    def _sentence(cls, error: ValidationError) -> str:
        first = error.errors(include_url=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            return message
        top, *rest = map(str, first["loc"])
        name = next((name for name, field in cls.model_fields.items() if top in (name, field.validation_alias)), top)
        field = cls.model_fields.get(name)
        alias = field.validation_alias if field else None
        variable = alias if isinstance(alias, str) else f"{cls.model_config['env_prefix']}{name}".upper()
        fix = (field.description if field else None) or message
        if first["type"] == "missing" and not rest:
            return f"{variable}: '' is empty: {fix}"
        if rest:
            return f"{variable}: {'.'.join(rest)}: {message}"[:500]
        return f"{variable}: {str(first['input'])[:200]!r} is not valid: {fix}"
