"""The image of garak: its version is pinned, each package by hash, and it runs as nobody in particular."""

import re

from images.definitions import COPY
from toolkit.places import REPOSITORY

DOCKERFILE = (REPOSITORY / "serving_image/garak/Dockerfile").read_text()
LOCK = (REPOSITORY / "requirements/garak.txt").read_text()


def test_the_locked_version_is_the_one_that_is_asked_for() -> None:
    asked = (REPOSITORY / "serving_image/garak/requirements.in").read_text().split()
    assert re.search(rf"^{re.escape(asked[0])} ", LOCK, re.M), f"make lock: {asked[0]} is not in requirements/garak.txt"
    for package in asked[1:]:
        assert re.search(rf"^{package}==", LOCK, re.M), f"make lock: {package} is not in requirements/garak.txt"


def test_each_package_has_a_hash_and_none_names_an_index() -> None:
    packages = re.split(r"^(?=\S)", LOCK, flags=re.M)[1:]
    assert len(packages) > 100
    assert all("--hash=sha256:" in package for package in packages)
    assert "://" not in LOCK
    assert "--require-hashes" in DOCKERFILE


def test_it_runs_as_a_user_without_rights_and_copies_what_the_context_has() -> None:
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.M) == ["65532:65532"]
    kept = (REPOSITORY / ".dockerignore").read_text()
    for line in COPY.findall(DOCKERFILE):
        source = line.split()[0]
        assert (REPOSITORY / source).exists()
        assert f"!{source}" in kept or f"!{source.split('/')[0]}" in kept
