"""Argo CD itself, built from its Go module, which takes a processor for ten minutes: only `make argocd` runs these."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.gitops import argo_cd
from testing.gitops.bare_api_server import bare_api_server as running

ROOT = Path(__file__).resolve().parents[2]
CONFIG_MAP = ROOT / "charts" / "argocd" / "argocd-cm.yaml"


@pytest.fixture(scope="session")
def argocd_program() -> Path:
    """The `argocd` command."""
    return argo_cd.program()


@pytest.fixture(scope="session")
def bare_api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Kubeconfig of an API server that knows nothing of learnloop yet."""
    with running(tmp_path_factory.mktemp("control-plane") / "state") as kubeconfig:
        yield kubeconfig
