"""Watches custom resources as a user's dashboard would: when did a change appear, when did its status follow?"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Self

import aiohttp

from bench.operator.api import Api, Expired
from learnloop_operator.kube.kinds import ResourceKind

Name = tuple[str, str, str]
"""Kind, namespace, name."""


class Observer:
    """An object is *behind* from the event that shows a new generation until the one whose status has observed it.

    Both moments are taken from one watch by one clock, so neither clocks nor the API server's delays are in the figure.
    """

    def __init__(self, api: Api, kinds: Iterable[ResourceKind]) -> None:
        self._api, self._kinds = api, tuple(kinds)
        self._tasks: list[asyncio.Task[None]] = []
        self.generations: dict[Name, int] = {}
        self.phases: dict[Name, str] = {}
        self.behind: dict[Name, float] = {}
        self.waits: dict[Name, float] = {}
        """Longest time behind, by object, in seconds."""
        self.caught_up: dict[Name, float] = {}
        """When the object was last seen to be current (time.monotonic)."""

    async def __aenter__(self) -> Self:
        for kind in self._kinds:
            version = await self._list(kind)
            self._tasks.append(asyncio.create_task(self._follow(kind, version)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def all_current(
        self, objects: int, alive: Callable[[], None] = lambda: None, seconds: float = 1200.0
    ) -> float:
        """Wait until `objects` are known and none is behind; the moment the last one caught up.

        `alive` is called all the while and raises when no process is left to wait for.

        Raises:
            TimeoutError: says how many are behind.
        """
        deadline = time.monotonic() + seconds
        while self.behind or len(self.generations) < objects:
            alive()
            if time.monotonic() > deadline:
                some = list(self.behind)[:3]
                count = len(self.generations)
                raise TimeoutError(f"{len(self.behind)} of {count} objects (expected {objects}) are behind, as {some}")
            await asyncio.sleep(0.02)
        return max(self.caught_up.values(), default=time.monotonic())

    def forget_waits(self) -> None:
        """Begin a new measurement."""
        self.waits.clear()
        self.caught_up.clear()

    async def _list(self, kind: ResourceKind) -> str:
        items, version = await self._api.list(kind)
        present = {(kind.kind, item["metadata"]["namespace"], item["metadata"]["name"]) for item in items}
        for name in [name for name in self.generations if name[0] == kind.kind and name not in present]:
            self._forget(name)
        for item in items:
            self._saw(kind, "ADDED", item)
        return version

    async def _follow(self, kind: ResourceKind, version: str) -> None:
        while True:
            try:
                async for type_, item in self._api.watch(kind, version):
                    self._saw(kind, type_, item)
                    version = item["metadata"]["resourceVersion"]
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.1)
            except Expired:
                version = await self._list(kind)

    def _saw(self, kind: ResourceKind, type_: str, item: Mapping[str, Any]) -> None:
        metadata, status, now = item["metadata"], item.get("status") or {}, time.monotonic()
        name = (kind.kind, metadata["namespace"], metadata["name"])
        if type_ == "DELETED":
            self._forget(name)
            return
        generation = metadata["generation"]
        self.generations[name], self.phases[name] = generation, status.get("phase", "")
        observed = status.get("observedGeneration") or 0
        if observed < generation:
            self.behind.setdefault(name, now)
        elif name in self.behind:
            since = self.behind.pop(name)
            self.waits[name] = max(now - since, self.waits.get(name, 0.0))
            self.caught_up[name] = now

    def _forget(self, name: Name) -> None:
        table: dict[Name, Any]
        for table in (self.generations, self.phases, self.behind):
            table.pop(name, None)
