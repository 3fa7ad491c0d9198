"""A data plane that asks its callers for tokens, and nothing else."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.servers.token_issuer import Cluster

from ..conftest import Api, running, settings

OPERATOR = "system:serviceaccount:learnloop-system:learnloop-operator"


@pytest.fixture
async def guarded(dsn: str, tmp_path: Path, cluster: Cluster) -> AsyncIterator[Api]:
    with cluster.served() as url:
        own = tmp_path / "token"
        own.write_text(cluster.token())
        tokens = {"auth": "jwks", "jwks_url": url, "jwks_token_file": str(own)}
        values = settings(
            dsn, tmp_path, **tokens, operator_subject=OPERATOR, kube_url=url.removesuffix("/openid/v1/jwks")
        )
        async with running(**values) as api:
            yield api
