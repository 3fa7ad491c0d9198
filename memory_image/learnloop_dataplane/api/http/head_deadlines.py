"""What the data plane's server speaks: HTTP/1.1 with deadlines, over single writes unless that is switched off."""

from learnloop_api.http_server.head_deadlines import HeadDeadlines
from learnloop_dataplane.tuning.single_write_responses import SingleWrites
from learnloop_dataplane.tuning.switches import SWITCHES


def protocol() -> type[HeadDeadlines]:
    """HTTP/1.1 with deadlines, over single writes unless that part of the tuning is off."""
    return TunedHeadDeadlines if SWITCHES.is_on("single-write-responses") else HeadDeadlines


class TunedHeadDeadlines(HeadDeadlines, SingleWrites):
    """The same, with single writes."""
