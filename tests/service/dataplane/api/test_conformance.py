"""The OpenAPI document is true, and no tenant sees another: the benches' own runs, short ones."""

import os
from collections.abc import Callable
from pathlib import Path

from bench.pipeline.conformance import explore
from bench.pipeline.tenancy import measure
from testing.servers.data_plane_process import Product

from ..conftest import Nats


def test_schemathesis_finds_nothing(migrated: Callable[[str], str], nats: Nats, tmp_path: Path) -> None:
    dsn = migrated(f"conformance_{os.getpid()}")
    settings = {"NATS_URL": nats.url, "LOG_LEVEL": "ERROR"}
    with Product(dsn, tmp_path, tmp_path / "artifacts", **settings) as product:
        url = f"http://127.0.0.1:{product.port}"
        result = explore(url, tmp_path, seconds=25, seed=20, phases="fuzzing,stateful")
    assert result["returncode"] == 0, result["output"][-8000:]
    assert sum(result["requests"].values()) > 0, "how many depends on how busy the machine is"


async def test_whoever_tries_sees_no_row_of_another_tenant(migrated: Callable[[str], str], tmp_path: Path) -> None:
    dsn = migrated(f"intruders_{os.getpid()}")
    result = await measure(dsn, tmp_path, statements=2000, requests=150, seed=20)
    assert (result["statements"], result["requests"]) == (2000, 150)
    assert (result["victims_tables_empty"], result["forged_writes"]) == (0, 3 * result["victims_tables"])
    assert (result["leaked"], result["victims_rows_lost"]) == (0, 0)
