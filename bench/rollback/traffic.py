"""Users: requests for an action through the gateway, evenly spaced, until the model cannot stand half of them."""

import asyncio
import random
import time
from dataclasses import dataclass, field

import aiohttp

from bench.rollback.figures import Breach
from bench.rollback.model import BAD, GOOD, OBSERVATIONS

TIMEOUT = aiohttp.ClientTimeout(total=10)


@dataclass
class Traffic:
    """`rps` requests per second to one deployment. Times are time.monotonic()."""

    session: aiohttp.ClientSession
    gateway: str
    name: str
    rps: float
    breaching: bool = False
    first_failure: float | None = None
    """When the first failed answer since `breach` came in."""
    sent: int = 0
    failed: int = 0
    """Requests since `breach` that the model failed at."""
    _under_way: set["asyncio.Task[None]"] = field(default_factory=set)

    def breach(self) -> None:
        """From now on half of the requests are of the kind that the canary fails at."""
        self.first_failure, self.failed, self.breaching = None, 0, True

    def over(self, when: float) -> Breach:
        """The breach ended at `when`; from now on all requests are harmless again."""
        assert self.first_failure is not None, "weight 0 before anything failed"
        self.breaching = False
        return Breach(when - self.first_failure, self.failed)

    async def run(self) -> None:
        """Send forever; a late answer does not hold up the next request."""
        due = time.monotonic()
        while True:
            due += 1.0 / self.rps
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self._ask())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _ask(self) -> None:
        bad = self.breaching and random.random() < 0.5
        tensor = {"name": "observation", "shape": [1, OBSERVATIONS], "datatype": "FP32"}
        body = {"inputs": [{**tensor, "data": [BAD if bad else GOOD] * OBSERVATIONS}]}
        url, host = f"{self.gateway}/v2/models/{self.name}/infer", f"{self.name}.example.com"
        self.sent += 1
        try:
            async with self.session.post(url, json=body, headers={"Host": host}, timeout=TIMEOUT) as answer:
                await answer.read()
                failed = answer.status == 500  # of the policy server; a gateway without a backend says 502 or 503
        except (aiohttp.ClientError, TimeoutError):
            failed = False  # the road, not the model: a breach begins with an answer that says so
        if failed and bad:
            self.failed += 1
            if self.first_failure is None:
                self.first_failure = time.monotonic()
