"""A Dockerfile's sources are in the build's context: .dockerignore lets through those, and nothing else."""

from pathlib import Path

import pytest

from images.definitions import COPY, DEFINITIONS, Definition
from toolkit.places import REPOSITORY

PRODUCT = [definition for definition in DEFINITIONS.values() if definition.context == REPOSITORY]


def copied(definition: Definition) -> list[Path]:
    lines = COPY.findall(definition.dockerfile.read_text())
    return [Path(word) for line in lines for word in line.split()[:-1] if not word.startswith("--")]


def let_through() -> list[Path]:
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    return [Path(line[1:]) for line in lines if line.startswith("!")]


@pytest.mark.parametrize("definition", PRODUCT, ids=lambda definition: definition.name)
def test_everything_that_an_image_copies_is_let_through(definition: Definition) -> None:
    for source in copied(definition):
        assert any(source.is_relative_to(folder) for folder in let_through()), f"add !{source} to .dockerignore"


def test_nothing_is_let_through_that_does_not_exist_or_that_no_image_copies() -> None:
    wanted = [source for definition in PRODUCT for source in copied(definition)]
    for folder in let_through():
        assert (REPOSITORY / folder).exists(), f"{folder} of .dockerignore does not exist"
        assert any(source.is_relative_to(folder) for source in wanted), f"no image copies {folder}"
