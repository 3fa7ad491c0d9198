"""Flux itself, built from its Go modules, which takes a processor for five minutes: only `make flux` runs these."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.gitops.bare_api_server import bare_api_server as running


@pytest.fixture(scope="session")
def bare_api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Kubeconfig of an API server that knows nothing of learnloop yet."""
    with running(tmp_path_factory.mktemp("control-plane") / "state") as kubeconfig:
        yield kubeconfig
