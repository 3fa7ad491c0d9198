"""The images that `CONTEXT=name make demo` builds, with a Docker that only notes how it was called."""

from pathlib import Path

import pytest

from demo.narrator import Narrator
from demo.settings import Settings
from demo.users_cluster import PRODUCT, provide_images
from testing.fake_programs import Fakes

SETTINGS = Settings(context="kind-mine", namespace="demo", values=(), keep=False)
ROCM = "registry.example.com/rocm/pytorch:7"


def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> dict[str, str]:
    """Image name → the build of it, as Docker got it."""
    fakes = Fakes(tmp_path)
    for name in ("docker", "kind"):
        fakes.program(name)
    for name in ("ACCELERATOR", "BASE_IMAGE", "TRAINER_BASE_IMAGE", "IMAGE_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in fakes.environment(**environment).items():
        monkeypatch.setenv(name, value)
    assert provide_images(SETTINGS, "kind-mine", Narrator())
    calls = [call for call in fakes.calls() if call.startswith("docker build")]
    commands = {name: next(call for call in calls if f"learnloop.local/{name}:" in call) for name in PRODUCT}
    assert len(calls) == len(commands)
    return commands


def test_a_trainer_for_amd_gets_an_image_of_its_own_that_has_rocm(tmp_path, monkeypatch):
    chosen = {"BASE_IMAGE": "mirror.example.com/python:3.13", "TRAINER_BASE_IMAGE": ROCM, "ACCELERATOR": "rocm"}
    others = builds(tmp_path, monkeypatch, **chosen)
    trainer = others.pop("trainer")
    assert f"--build-arg ACCELERATOR=rocm --build-arg BASE_IMAGE={ROCM}" in trainer
    assert "mirror.example.com" not in trainer
    assert all("--build-arg BASE_IMAGE=mirror.example.com/python:3.13" in call for call in others.values())
