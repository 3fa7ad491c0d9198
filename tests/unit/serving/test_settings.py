"""The settings of a policy server in its environment."""

import os
from pathlib import Path
from unittest import mock

import pytest

from learnloop_common.settings import ConfigurationError
from learnloop_serving.settings import Settings
from testing.servers.policy_servers import STABLE, clean_environment


def read_settings(env: dict[str, str]) -> Settings:
    with mock.patch.dict(os.environ, env, clear=True):
        return Settings.read()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LEARNLOOP_REVISION", "xyz"),
        ("LEARNLOOP_MODEL_URI", "model.onnx"),
        ("LEARNLOOP_MODEL_SHA256", "abc"),
        ("LEARNLOOP_ROUTING_MODE", "mesh"),
        ("LEARNLOOP_MODEL_DEPLOYMENT", ""),
        ("LEARNLOOP_DRAIN_SECONDS", "-1"),
        ("LEARNLOOP_PORT", "http"),
        ("LEARNLOOP_ROUTING_FILE", ""),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, value: str) -> None:
    right = clean_environment(
        LEARNLOOP_MODEL_DEPLOYMENT="cart",
        LEARNLOOP_REVISION=STABLE,
        LEARNLOOP_MODEL_URI="uniform://discrete/2",
        LEARNLOOP_ROUTING_FILE=str(tmp_path / "routing.json"),
    )
    env = right | {variable: value}
    env.pop("KUBERNETES_SERVICE_HOST", None)
    with pytest.raises(ConfigurationError, match=variable):
        read_settings(env)


def test_in_a_cluster_the_key_of_the_episodes_has_to_be_mounted() -> None:
    env = clean_environment(
        LEARNLOOP_MODEL_DEPLOYMENT="cart",
        LEARNLOOP_REVISION=STABLE,
        LEARNLOOP_MODEL_URI="uniform://discrete/2",
        KUBERNETES_SERVICE_HOST="10.0.0.1",
    )
    with pytest.raises(ConfigurationError, match="LEARNLOOP_EPISODE_KEY_FILE: '' is empty: mount the Secret"):
        read_settings(env)
    key = "/var/run/secrets/key"
    assert read_settings(env | {"LEARNLOOP_EPISODE_KEY_FILE": key}).episode_key_file == Path(key)
