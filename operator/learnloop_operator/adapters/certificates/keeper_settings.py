"""What the chart tells of the certificates that the operator makes, as JSON in one variable."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from learnloop_operator.adapters.certificates.keeper import CertificateKeeper, Lives, Places, Requests
from learnloop_operator.adapters.settings import SettingsError

VARIABLE = "LEARNLOOP_TLS_KEEPER"


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    namespace: str = Field(min_length=1)
    authority: str = Field(min_length=1)
    signer: str = Field(min_length=1)
    own: str = ""
    folder: str = ""
    parts: dict[str, list[str]]
    authority_days: float = Field(gt=0, le=3650)
    part_hours: float = Field(gt=0, le=8760)
    announce_hours: float = Field(ge=0, le=8760)


def keeper_of(text: str, http: Requests, clock: Callable[[], datetime]) -> CertificateKeeper:
    """The keeper of what `text` names.

    Raises:
        SettingsError: it is not what the chart writes, or its times do not fit one another.
    """
    try:
        told = _Told.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise SettingsError(f"{VARIABLE}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    lives = Lives(
        authority=timedelta(days=told.authority_days),
        part=timedelta(hours=told.part_hours),
        announcement=timedelta(hours=told.announce_hours),
    )
    # From two thirds of its life on an authority is followed: what is left must be enough for all that comes then.
    if lives.authority / 3 < lives.announcement + lives.part:
        raise SettingsError(
            f"{VARIABLE}: a third of authorityDays ({told.authority_days:g}) is shorter than announceHours "
            f"({told.announce_hours:g}) and partHours ({told.part_hours:g}) together: make authorityDays longer"
        )
    places = Places(
        namespace=told.namespace,
        authority=told.authority,
        parts=told.parts,
        signer=told.signer,
        own=told.own,
        folder=Path(told.folder) if told.folder else None,
    )
    return CertificateKeeper(http, places, lives, clock)
