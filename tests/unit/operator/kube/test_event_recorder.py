"""Events: told beside the work, never in its way."""

import asyncio
from collections.abc import Callable
from typing import Any

from learnloop_operator.core.plan import Notice
from learnloop_operator.kube import event_recorder
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.event_recorder import BURST, EventRecorder


class Kube:
    """Keeps what is created."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []

    async def create(self, event: dict[str, Any]) -> None:
        self.created.append(event)


def thing(number: int) -> dict[str, Any]:
    metadata = {"name": f"thing-{number}", "namespace": "ns", "uid": str(number)}
    return {"apiVersion": "learnloop.dev/v1alpha1", "kind": "RewardPolicy", "metadata": metadata}


async def flooded(kube: Kube, count: int) -> tuple[EventRecorder, "asyncio.Task[None]"]:
    recorder = EventRecorder(kube, "op", lambda: 0.0)  # type: ignore[arg-type]  # time stands still: no pause is over soon
    for number in range(count):
        recorder.note(thing(number), Notice("Normal", "Published", f"thing {number}"))
    task = asyncio.create_task(recorder.run())
    await until(lambda: len(kube.created) >= event_recorder.AT_ONCE)
    for _ in range(1000):  # turns of the loop, in which more would be sent if more were
        await asyncio.sleep(0)
    return recorder, task


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not happened():  # noqa: ASYNC110 what is waited for is a state, not an event
            await asyncio.sleep(0)


async def test_a_flood_of_normal_events_goes_slowly_and_a_warning_overtakes_it() -> None:
    kube = Kube()
    recorder, task = await flooded(kube, 400)
    assert event_recorder.AT_ONCE <= len(kube.created) < event_recorder.AT_ONCE + 20
    recorder.note(thing(1000), Notice("Warning", "RolledBack", "worse"))
    await until(lambda: "RolledBack" in [event["reason"] for event in kube.created])
    assert len(kube.created) < 200
    task.cancel()


async def test_at_the_end_what_waits_is_sent_without_pauses_with_the_time_it_was_noted() -> None:
    kube = Kube()
    recorder, task = await flooded(kube, 400)
    await recorder.drain(30)
    assert len(kube.created) == 400
    times = [event["eventTime"] for event in kube.created]
    assert times == sorted(times)
    sent = [event["note"] for event in kube.created]
    assert sent == [f"thing {number}" for number in range(400)]
    task.cancel()


async def test_more_than_a_thousand_waiting_are_not_kept() -> None:
    kube = Kube()
    recorder, task = await flooded(kube, event_recorder.PENDING + 50)
    await recorder.drain(30)
    assert len(kube.created) == event_recorder.PENDING
    task.cancel()


async def test_repeated_events_become_one_series_and_failures_fail_nothing() -> None:
    sent: list[tuple[str, Any]] = []

    class Kube:
        async def create(self, body: Any) -> None:
            sent.append(("create", body))

        async def patch(self, *args: Any) -> None:
            sent.append(("patch", args[3]))
            raise KubeError("refused")

    recorder = EventRecorder(Kube(), "op")  # type: ignore[arg-type]
    about = {"apiVersion": "v", "kind": "K", "metadata": {"name": "x", "namespace": "ns", "uid": "u"}}
    for _ in range(BURST + 10):
        recorder.note(about, Notice("Normal", "Held", "no data"))
    task = asyncio.create_task(recorder.run())
    await recorder.drain(2)
    task.cancel()
    assert sum(kind == "create" for kind, _ in sent) == 1
    assert len(sent) == BURST, "a loud object is cut off"
    assert sent[-1][1]["series"]["count"] == BURST
