"""Short forms of the columns every table is made of."""

from typing import Any

from sqlalchemy import BigInteger, Column, DateTime, Identity, text
from sqlmodel import Field


def column(
    type_: Any, *, null: bool = False, key: bool = False, default: str | None = None, name: str | None = None
) -> Any:
    """A column of this SQL type; `default` is an SQL expression, `name` another than the field's."""
    return Field(
        sa_column=Column(
            name, type_, nullable=null, primary_key=key, server_default=text(default) if default is not None else None
        )
    )


def time_column(*, null: bool = False, key: bool = False, default: str | None = None) -> Any:
    """A timestamptz column: every time here has a zone."""
    return column(DateTime(timezone=True), null=null, key=key, default=default)


def sequence_column(*, key: bool = False) -> Any:
    """A number that PostgreSQL gives to each new row."""
    return Field(sa_column=Column(BigInteger, Identity(always=True), nullable=False, primary_key=key))
