import asyncio
from pathlib import Path

import pytest

from learnloop_operator.kube.fenced_client import KubeClient
from testing.operators.api_access import from_kubeconfig
from testing.operators.training_kinds import install


@pytest.fixture(scope="session")
def kinds(api_server: Path) -> None:
    """The API server knows everything that may run or queue training."""
    asyncio.run(install_kinds(api_server))


async def install_kinds(api_server: Path) -> None:
    user = KubeClient(from_kubeconfig(api_server))
    await install(user)
    await user.close()
