"""`python -m bench.judges.acto [TRANSITIONS] [SEED]`: the operator is driven through every field of its five kinds.

The method is Acto's (SOSP '23): change one field, wait until nothing happens any more, and ask four oracles: does the
system agree with the spec, is the operator healthy, has its log an error, and does undoing the change bring back what
was there? Then the same changes with the operator killed at random moments: everything must be as it was without.
"""

import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.arguments import numbers
from bench.judges.acto_rig import LEASE_NAME, LOOK, OWN, Rig, difference, leaves, rig
from bench.judges.acto_values import MISSING, Case, cases, changed, get
from bench.judges.cases import Suite, finish
from learnloop_api.names import API_VERSION
from learnloop_operator.kube import kinds
from learnloop_operator.kube.kinds import kind_of

REPOSITORY = Path(__file__).resolve().parents[2]
SEEDS = [*(f"examples/{name}.yaml" for name in (
    "quickstart/quickstart", "model-deployment/model-deployment", "memory-service/memory-service", "study/study",
    "curriculum/curriculum", "language-model/trained", "language-model/volume", "experiment/experiment",
    "gates/red-team", "gateway/gateway", "shadow/shadow", "reward-policy/reward-policy"
    )), "tests/api/kinds/objects.yaml"]  # fmt: skip
"""Files of objects that users begin with: a field is changed in the one that has most of what is above it."""
NAMED = ("RewardPolicy", "MemoryService")
"""Kinds that a target of another kind names: they are there with it."""
LANES, PATIENCE = 24, 90.0
JSON_PATCH = "application/json-patch+json"
IMMUTABLE = re.compile("immutable|cannot change between")
REACHES_PODS = {"image", "imagePullPolicy", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints",
                "schedulerName", "priorityClassName", "serviceAccountName", "env", "volumeMounts",
                "volumes"}  # fmt: skip
"""Fields that a pod template has, too: an accepted value must be in one, or the status says why it is not."""
KILL_SHARE, LATE_SECONDS = 0.25, 8.0
KILL_WITHIN_SECONDS = 2.5


@dataclass
class Tally:
    """Counts of a run."""

    suite: Suite
    wanted: int
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reached: dict[str, bool] = field(default_factory=dict)
    """Fields of which a value was accepted, and whether one of them was seen in a child."""

    @property
    def transitions(self) -> int:
        return self.accepted.total() + self.refused.total()


@dataclass
class Lane:
    """A namespace with a seed's objects, of which one is changed, and its cases."""

    rig: Rig
    tally: Tally
    namespace: str
    manifests: Sequence[dict[str, Any]]
    target: dict[str, Any]
    schema: dict[str, Any]
    cases: list[Case]
    before: dict[str, Any] = field(default_factory=dict)
    accepted_cases: list[Case] = field(default_factory=list)
    """Cases that were accepted."""

    @property
    def kind(self) -> kinds.ResourceKind:
        return kind_of(self.target)

    @property
    def name(self) -> str:
        return str(self.target["metadata"]["name"])

    async def begin(self) -> None:
        """Create everything and remember what became of it."""
        await self.rig.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        for manifest in self.manifests:
            await self._create(manifest, manifest["spec"])
        self.before = await self.late()

    async def _create(self, manifest: dict[str, Any], spec: Any) -> Any:
        metadata = {**manifest["metadata"], "namespace": self.namespace}
        body = {**manifest, "metadata": metadata, "spec": spec}
        return await self.rig.api.call("POST", self.kind_path(manifest), body, fieldValidation="Strict")

    def kind_path(self, manifest: dict[str, Any]) -> str:
        return kind_of(manifest).path(self.namespace)

    async def write(self, spec: Any) -> None:
        """Replace the spec; the object is made again where its kind refuses the change of what is immutable.

        Raises:
            RuntimeError: the API server refuses the spec itself.
        """
        path = self.kind.path(self.namespace, self.name)
        patch = [{"op": "replace", "path": "/spec", "value": spec}]
        self.rig.touched[self.namespace] = time.monotonic()
        try:
            answer = await self.rig.api.call("PATCH", path, patch, JSON_PATCH, fieldValidation="Strict")
        except RuntimeError as error:
            if not IMMUTABLE.search(str(error)):
                raise
            dry = {**self.target, "metadata": {"name": f"{self.name}-dry", "namespace": self.namespace}, "spec": spec}
            create = self.kind_path(self.target)
            await self.rig.api.call("POST", create, dry, fieldValidation="Strict", dryRun="All")
            await self._delete()
            answer = await self._create(self.target, spec)
        self.rig.newest[self.namespace] = int(answer["metadata"]["resourceVersion"])
        self.rig.touched[self.namespace] = time.monotonic()

    async def _delete(self) -> None:
        key = self.kind.kind, self.name
        uid = self.rig.objects[self.namespace][key]["metadata"]["uid"]
        await self.rig.api.delete(self.kind, self.namespace, self.name)
        await until(lambda: key not in self.rig.objects[self.namespace] and not self.rig.owned(self.namespace, uid))

    async def settled(self) -> dict[str, Any]:
        """The state once nothing happens. TimeoutError: something goes on happening, or the spec is not observed."""
        try:
            await until(lambda: self.rig.current(self.namespace))
        except TimeoutError:
            item = self.rig.objects[self.namespace].get((self.kind.kind, self.name), {})
            raise TimeoutError(f"not settled: {json.dumps(item.get('status'))[:600]}") from None
        return self.rig.state(self.namespace)

    async def steady(self) -> dict[str, Any]:
        """The state after one more look of the operator: what only its last deed explains has passed."""
        await self.settled()
        look = {"metadata": {"annotations": {LOOK: str(time.monotonic())}}}
        for kind, name in [key for key in self.rig.objects[self.namespace] if key[0] in OWN]:
            await self.rig.api.merge(OWN[kind], self.namespace, name, look)
        self.rig.touched[self.namespace] = time.monotonic()
        return await self.settled()

    async def late(self) -> dict[str, Any]:
        """The state that is the same after LATE_SECONDS as before: the one that others are compared with."""
        before: dict[str, Any] = {}
        while before != (now := await self.steady()):
            before = now
            await asyncio.sleep(LATE_SECONDS * slowness())
        return before

    async def becomes(self, wanted: dict[str, Any]) -> None:
        """AssertionError with the difference, when the state is not this one in time."""
        end = time.monotonic() + patience()
        while different := difference(wanted, await self.steady()):
            assert time.monotonic() < end, f"{len(different)} differences: {json.dumps(different)[:1500]}"

    async def play(self, case: Case) -> None:
        """One change and its undoing, with all oracles."""
        where = f"{self.kind.kind} {self.namespace} {case}"
        try:
            await self.write(self.spec_of(case))
        except RuntimeError as error:
            self.tally.refused[case.kind] += 1
            with self.tally.suite.case(where):
                if "spec" not in str(error):
                    raise ValueError(f"the refusal names no field: {error}") from None
            return
        self.tally.accepted[case.kind] += 1
        with self.tally.suite.case(where):
            await self._agrees(case)
            self.accepted_cases.append(case)
        self.tally.accepted["undone"] += 1
        with self.tally.suite.case(f"{where}, undone"):
            await self.write(self.target["spec"])
            await self.becomes(self.before)

    async def _agrees(self, case: Case) -> None:
        """AssertionError when the value is in no pod although pods have such a field, and no condition says why."""
        end = time.monotonic() + patience() / 3
        while True:
            after = await self.steady()
            object_ = self.rig.objects[self.namespace][self.kind.kind, self.name]
            children = {key: value for key, value in after.items() if key != f"{self.kind.kind}/{self.name}"}
            different = difference({key: self.before.get(key) for key in children}, children)
            stored, was = get(object_["spec"], case.path), get(self.target["spec"], case.path)
            texts = [str(new) for _, new in different.values()]
            scalars = [str(value) for _, value in leaves(stored) if value not in ({}, [], MISSING)]
            reached = all(any(value in text for text in texts) for value in scalars) if scalars else bool(different)
            conditions = {item["type"]: item["status"] for item in object_["status"]["conditions"]}
            troubled = conditions["Stalled"] == "True" or conditions["Ready"] != "True"
            later = case.path[:2] == ("training", "template")  # a run takes it with it when it begins
            must = REACHES_PODS & {str(part) for part in case.path} and scalars and stored != was and not later
            if reached or troubled or not must:
                break
            assert time.monotonic() < end, f"accepted, Ready, and in no pod: {json.dumps(different)[:600]}"
        name = f"{self.kind.kind} {case.field}"
        self.tally.reached[name] = reached or self.tally.reached.get(name, False)

    async def killed(self, case: Case | None, wanted: dict[str, Any], where: str) -> None:
        """The end of a change (None: of its undoing) during which the operator was killed."""
        self.tally.accepted["killed"] += 1
        with self.tally.suite.case(f"{self.kind.kind} {self.namespace} {case or 'undone'}, {where}"):
            await self.becomes(wanted)

    def spec_of(self, case: Case | None) -> Any:
        """The spec with the case's value; None: as it was."""
        return changed(self.schema, self.target["spec"], case) if case else self.target["spec"]


def patience() -> float:
    return PATIENCE * slowness()


def slowness() -> float:
    """How many processes share a core of this machine, one at least."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


async def until(holds: Callable[[], bool]) -> None:
    """TimeoutError once the patience is at its end."""
    async with asyncio.timeout(patience()):
        while not holds():  # noqa: ASYNC110 - what it waits for are objects that watches bring
            await asyncio.sleep(0.1)


async def kill_once(made: Rig, lanes: Sequence[Lane], draw: random.Random) -> None:
    """Make an accepted change in each lane and undo it, then the same with the operator killed somewhere in each."""
    chosen = [(lane, draw.choice(lane.accepted_cases)) for lane in lanes if lane.accepted_cases]
    await asyncio.gather(*(lane.write(lane.spec_of(case)) for lane, case in chosen))
    wanted = await asyncio.gather(*(lane.late() for lane, _ in chosen), return_exceptions=True)
    await asyncio.gather(*(lane.write(lane.spec_of(None)) for lane, _ in chosen))
    await asyncio.gather(*(lane.killed(None, lane.before, "not killed") for lane, _ in chosen))
    for undoing in (False, True):
        await asyncio.gather(*(lane.write(lane.spec_of(None if undoing else case)) for lane, case in chosen))
        after = draw.uniform(0.0, KILL_WITHIN_SECONDS)
        await asyncio.sleep(after)
        made.operator.end(signal.SIGKILL)
        await made.api.delete(kinds.LEASE, "default", LEASE_NAME)
        made.operator.begin()
        where = f"killed {after:.2f} s after the change"
        ends = [
            (lane, None if undoing else case, lane.before if undoing else state)
            for (lane, case), state in zip(chosen, wanted, strict=True)
            if isinstance(state, dict)
        ]
        await asyncio.gather(*(lane.killed(case, state, where) for lane, case, state in ends))


def lanes_of(made: Rig, tally: Tally, draw: random.Random) -> list[Lane]:
    """Each seed's target with the cases of the fields that are nearest to what it has."""
    schemas = {}
    for file in sorted((REPOSITORY / "crds").glob("*.yaml")):
        definition = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        schema = definition["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        schemas[definition["names"]["kind"]] = schema
    seeds = [
        (target, [it for it in items if it["kind"] in NAMED or it is target])
        for items in map(documents, SEEDS)
        for target in items
    ]
    shares: dict[int, list[Case]] = defaultdict(list)
    for kind, schema in schemas.items():
        numbered = [number for number, (target, _) in enumerate(seeds) if target["kind"] == kind]
        best: dict[str, int] = {}
        for case in cases(schema, {}, draw):

            def depth(number: int, path: Any = case.path) -> int:
                return max(n for n in range(len(path) + 1) if get(seeds[number][0]["spec"], path[:n]) is not MISSING)

            best.setdefault(case.field, max(numbered, key=depth))
        for number in numbered:
            own = cases(schema, seeds[number][0]["spec"], draw)
            shares[number] += [case for case in own if best[case.field] == number]
    total = sum(map(len, shares.values()))
    lanes = []
    for number, share in shares.items():
        count = max(1, round(LANES * len(share) / total))
        for part in range(count):
            target, items = seeds[number]
            schema = schemas[target["kind"]]
            lanes.append(Lane(made, tally, f"acto-{number}-{part}", items, target, schema, share[part::count]))
    return lanes


def documents(file: str) -> list[dict[str, Any]]:
    """Objects of our kinds in a file."""
    parsed = yaml.safe_load_all((REPOSITORY / file).read_text(encoding="utf-8"))
    return [item for item in parsed if item["apiVersion"] == API_VERSION]


async def drive(wanted: int, seed: int) -> Suite:
    suite = Suite("Acto's method", "SOSP 23")
    tally, draw = Tally(suite, wanted), random.Random(seed)
    async with rig() as made:
        lanes = lanes_of(made, tally, draw)
        await asyncio.gather(*(lane.begin() for lane in lanes))
        say(f"{len(lanes)} lanes have begun")
        saying = asyncio.create_task(progress(tally))
        most = wanted * (1 - KILL_SHARE)

        async def free(lane: Lane) -> None:
            for case in lane.cases:
                if tally.transitions >= most:
                    return
                await lane.play(case)

        await asyncio.gather(*(free(lane) for lane in lanes))
        while tally.transitions < wanted:
            assert any(lane.accepted_cases for lane in lanes), "nothing was accepted"
            await kill_once(made, lanes, draw)
        saying.cancel()
        for first, count in made.operator.errors():
            suite.fails(f"the operator's log has an error, {count} times: {first[:2000]}")
        fields = tally.reached.values()
        say(f"{len(fields)} fields with an accepted value, {sum(fields)} of them in children")
    suite.cases = tally.transitions
    return suite


async def progress(tally: Tally) -> None:
    while True:
        await asyncio.sleep(20.0)
        say(f"{tally.transitions} transitions ({dict(tally.accepted)}, refused {dict(tally.refused)})")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    options = numbers(__doc__, sys.argv[1:], transitions=2000, seed=1)
    return finish(asyncio.run(drive(options.transitions, options.seed)))


if __name__ == "__main__":
    sys.exit(main())
