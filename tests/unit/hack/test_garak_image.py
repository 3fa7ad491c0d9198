"""The image of garak: its version is pinned, each package by hash, and it runs as a user without rights."""

import re

from toolkit.places import REPOSITORY

DOCKERFILE = (REPOSITORY / "serving_image/garak/Dockerfile").read_text()
LOCK = (REPOSITORY / "requirements/garak.txt").read_text()


def test_the_locked_version_is_the_one_that_is_asked_for() -> None:
    words = (REPOSITORY / "serving_image/garak/requirements.in").read_text().split()
    assert re.search(rf"^{re.escape(words[0])} ", LOCK, re.M), f"make lock: {words[0]} is not in requirements/garak.txt"
    for package in words[1:]:
        assert re.search(rf"^{package}==", LOCK, re.M), f"make lock: {package} is not in requirements/garak.txt"


def test_it_installs_by_hash_and_runs_as_a_user_without_rights() -> None:
    assert "--require-hashes" in DOCKERFILE
    assert "\nUSER 65532:65532\n" in DOCKERFILE
