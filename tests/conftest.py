"""How hard hypothesis looks, and what the garbage collector looks at, for all tests."""

import gc

import pytest
from hypothesis import HealthCheck, settings

# Neither a clock nor chance decides: a busy machine is slow, not wrong, and a test that passed passes until it or the
# code changes. `--hypothesis-profile=thorough` looks forty times as long, each time at other examples.
settings.register_profile(
    "quick", max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000, derandomize=False)
settings.load_profile("quick")

gc.disable()  # what is imported and collected stays


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """The half million objects of that are looked at no more: it took a twentieth of the unit tests' time."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Some wait for a build, and for one another on a busy machine."""
    for item in items:
        if item.nodeid.startswith(("tests/argocd", "tests/flux", "tests/loki")):
            item.add_marker(pytest.mark.timeout(3600))
