"""How hard hypothesis looks, and which tests share a process, for all tests."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Neither a clock nor chance decides: a busy machine is slow, not wrong, and a test that passed passes until it or the
# code changes. `--hypothesis-profile=thorough` looks forty times as long, each time at other examples.
settings.register_profile(
    "quick", max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000, derandomize=False)
settings.load_profile("quick")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadscope` each process gets whole directories: renderings and models of one are made once."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByDirectory(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.split("::", 1)[0].rpartition("/")[0]

    return ByDirectory(config, log)
