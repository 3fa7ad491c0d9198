"""Events: sent next to the work, never in its way."""

import asyncio
from typing import Any

from learnloop_operator.core.plan import Notice
from learnloop_operator.kube import kubernetes_events
from learnloop_operator.kube.errors import KubeError
from learnloop_operator.kube.kubernetes_events import EventRecorder


class Kube:
    """Keeps what is created."""

    def __init__(self) -> None:
        self.created = []

    async def create(self, event: dict) -> None:
        self.created.append(event)


def thing(number: int) -> dict:
    metadata = {"name": f"thing-{number}", "namespace": "ns", "uid": str(number)}
    return {"apiVersion": "learnloop.dev/v1alpha1", "kind": "RewardPolicy", "metadata": metadata}


def flooded(kube: Kube, count: int) -> tuple[EventRecorder, "asyncio.Task[None]"]:
    recorder = EventRecorder(kube, "op")
    for number in range(count):
        recorder.note(thing(number), Notice("Normal", "Published", f"thing {number}"))
    return recorder, asyncio.create_task(recorder.run())


async def test_at_the_end_what_waits_is_sent_with_the_time_it_was_noted() -> None:
    kube = Kube()
    recorder, task = flooded(kube, 400)
    await recorder.drain(30)
    assert len(kube.created) == 400
    times = [event["eventTime"] for event in kube.created]
    assert times == sorted(times)
    sent = [event["note"] for event in kube.created]
    assert sent == [f"thing {number}" for number in range(400)]
    task.cancel()


async def test_more_than_a_thousand_waiting_are_not_kept() -> None:
    kube = Kube()
    recorder, task = flooded(kube, kubernetes_events.PENDING + 50)
    await recorder.drain(30)
    assert len(kube.created) == kubernetes_events.PENDING
    task.cancel()


async def test_a_repeated_event_is_sent_once_and_failures_fail_nothing() -> None:
    sent, clock = list[Any](), [0.0]

    class Kube:
        async def create(self, body) -> None:
            sent.append(body)
            if len(sent) == 1:
                raise KubeError("refused")

    recorder = EventRecorder(Kube(), "op", lambda: clock[0])
    about = {"apiVersion": "v", "kind": "K", "metadata": {"name": "x", "namespace": "ns", "uid": "u"}}
    for _ in range(25):
        recorder.note(about, Notice("Normal", "Held", "no data"))
    task = asyncio.create_task(recorder.run())
    await recorder.drain(2)
    assert len(sent) == 2, "the one that was refused is sent again"
    clock[0] = kubernetes_events.REPEAT_SECONDS
    recorder.note(about, Notice("Normal", "Held", "no data"))
    await recorder.drain(2)
    task.cancel()
    assert len(sent) == 3
