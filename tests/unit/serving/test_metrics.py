"""The counters of a policy server, for itself and for the other arms whose episodes it opens."""

from learnloop_api import names
from learnloop_serving.server_metrics import Metrics


def test_a_pod_that_lives_through_a_hundred_rollouts_still_counts_the_openings_of_the_latest() -> None:
    metrics = Metrics("md", "aaaaaaaa")
    metrics.opened("aaaaaaaa")
    for number in range(100):
        metrics.opened(f"{number:08x}")
    text = metrics.render().decode()
    own, last, first = (f'revision="{it}"}} 1.0' for it in ("aaaaaaaa", f"{99:08x}", f"{0:08x}"))
    opened = [line for line in text.splitlines() if line.startswith(names.METRIC_EPISODES_OPENED)]
    assert any(own in line for line in opened)
    assert any(last in line for line in opened)
    assert not any(first in line for line in opened), "it grows without bound"
