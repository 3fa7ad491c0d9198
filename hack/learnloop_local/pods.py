"""Pods as processes: what a kubelet does, as far as one machine and one user can do it.

An image is the module that it runs, volumes are folders, ports are free ones of loopback. A pod that needs more waits
and says for what.
"""

import asyncio
import base64
import contextlib
import functools
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from learnloop_api import names
from learnloop_common.termination_message import ENV_TERMINATION_LOG, MOUNTED
from learnloop_local import addresses
from learnloop_local.store import Object, Refused, Store, now
from learnloop_local.tokens import Issuer
from learnloop_operator.cli.cluster import with_its_parent
from learnloop_operator.kube import kinds

MODULES = {"trainer": "learnloop_trainer", "serving": "learnloop_serving", "memory": "learnloop_dataplane"}
PROBE_SECONDS, RETRY_SECONDS = 0.25, 2.0
BACKOFFS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
CALM_SECONDS = 60.0
"""A process that ran so long begins with the first back-off again."""
LAST_LINES = 4096
WRONG = (OSError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of a spec that is not as Kubernetes has it, and of a full disk: they concern one pod."""
TEMPORARY = "/tmp"


def image(part: str) -> str:
    """The name of an image that stands for a module of this environment."""
    return f"learnloop.local/{part}"


class Unable(Exception):
    """This machine cannot do what a pod asks for; says what, and what to do."""


class Lifeline:
    """A pipe that children read; it closes when this process ends, even by SIGKILL."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    async def start(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path | None = None
    ) -> asyncio.subprocess.Process:
        """A child in a group of its own, which adds what it prints to `log`."""
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *with_its_parent(command),
                stdin=self._read, stdout=output, stderr=output, env=environment, cwd=folder, start_new_session=True,
            )  # fmt: skip


async def end(process: asyncio.subprocess.Process, seconds: float) -> int:
    """Its exit status, with SIGTERM first and SIGKILL for the whole group after `seconds`."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        pass
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return await process.wait()


def environment_of(**more: str) -> dict[str, str]:
    """This process's environment without what is about learnloop or a cluster, and with this Python first on PATH."""
    variables = {key: text for key, text in os.environ.items() if not key.startswith(("LEARNLOOP_", "KUBE", "POD_"))}
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), variables.get("PATH"))))
    return {**variables, "PATH": path, "PYTHONUNBUFFERED": "1", **more}


@dataclass
class Plan:
    """A container's process."""

    command: list[str]
    environment: dict[str, str]
    ports: dict[str, int]


@dataclass
class Pods:
    """Every pod of the store, each with a task that looks after its process."""

    store: Store
    issuer: Issuer
    network: addresses.Addresses
    lifeline: Lifeline
    folder: Path
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def log_file(self, namespace: str, name: str) -> Path:
        (logs := self.folder / "logs" / namespace).mkdir(parents=True, exist_ok=True)
        return logs / f"{name}.log"

    def log(self, namespace: str, name: str) -> str:
        file = self.log_file(namespace, name)
        return file.read_text(errors="replace") if file.exists() else ""

    def look(self) -> None:
        """Begin pods that are new, and end those that were deleted."""
        for pod in self.store.every(kinds.POD):
            uid, going = pod["metadata"]["uid"], "deletionTimestamp" in pod["metadata"]
            if uid not in self.tasks and not going:
                self.tasks[uid] = asyncio.create_task(self._live(pod))
            elif going and (task := self.tasks.get(uid)) is not None and not task.cancelling():
                task.cancel()
                task.add_done_callback(functools.partial(self._gone, pod))
            elif going and task is None:
                self._gone(pod)

    def write_config_maps(self) -> None:
        """ConfigMaps that running pods have mounted, as they are now."""
        for target, namespace, chosen in self._mounted():
            body = self.store.find(kinds.CONFIG_MAP, namespace, chosen["name"])
            if body is not None:
                with contextlib.suppress(*WRONG):  # the next start of the pod says it
                    self._files(target, body.get("data") or {}, chosen.get("items"))

    async def stop(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    def _gone(self, pod: Object, _: object = None) -> None:
        metadata = pod["metadata"]
        self.tasks.pop(metadata["uid"], None)
        self.network.pods.pop(metadata["uid"], None)
        self.store.remove(kinds.POD, metadata["namespace"], metadata["name"])
        shutil.rmtree(self._home(pod), ignore_errors=True)
        self.log_file(metadata["namespace"], metadata["name"]).unlink(missing_ok=True)

    def _home(self, pod: Object) -> Path:
        return self.folder / "pods" / str(pod["metadata"]["uid"])

    def _mounted(self) -> list[tuple[Path, str, Object]]:
        return [
            (self._home(pod) / volume["name"], pod["metadata"]["namespace"], volume["configMap"])
            for pod in self.store.every(kinds.POD)
            if pod["metadata"]["uid"] in self.network.pods  # it has been planned, and is well-formed
            for volume in [*(pod["spec"].get("volumes") or ()), *_routing(pod)]
            if "configMap" in volume
        ]

    async def _live(self, pod: Object) -> None:
        """From the first process to the last; a pod that this machine cannot run waits."""
        spec, restarts, last = pod["spec"], 0, None
        began = asyncio.get_running_loop().time()
        while True:
            try:
                plan = self._plan(pod)
                code, ended = await self._run(pod, plan, restarts, last)
            except (Unable, Refused, *WRONG) as error:
                plain = isinstance(error, Unable | Refused | OSError)
                message = str(error) if plain else f"spec: {error!r}: correct it"
                waiting = {"waiting": {"reason": "NotOnThisMachine", "message": message}}
                self._say(pod, "Pending", waiting, restarts, last)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            again = spec.get("restartPolicy", "Always")
            if again == "Never" or (again == "OnFailure" and code == 0):
                self._say(pod, "Failed" if code else "Succeeded", ended, restarts, last)
                return
            last, restarts = ended, restarts + 1
            calm = asyncio.get_running_loop().time() - began > CALM_SECONDS
            pause = BACKOFFS[0 if calm else min(restarts - 1, len(BACKOFFS) - 1)]
            waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": f"starts again in {pause:g} s"}}
            self._say(pod, "Running", waiting, restarts, last)
            await asyncio.sleep(pause)

    async def _run(self, pod: Object, plan: Plan, restarts: int, last: Object | None) -> tuple[int, Object]:
        """One process to its end: the exit status as Kubernetes counts it, and the container's last state."""
        metadata, home = pod["metadata"], self._home(pod)
        words = Path(plan.environment[ENV_TERMINATION_LOG])
        words.unlink(missing_ok=True)
        self.network.pods[metadata["uid"]] = plan.ports
        if "metrics" in plan.ports:  # the operator and Prometheus read where from the pod
            note = {names.ANNOTATION_PORT: str(plan.ports["metrics"])}
            self.store.merge(kinds.POD, metadata["namespace"], metadata["name"], {"metadata": {"annotations": note}})
        log, started = self.log_file(metadata["namespace"], metadata["name"]), now()
        process = await self.lifeline.start(plan.command, plan.environment, log, home)
        probe = pod["spec"]["containers"][0].get("readinessProbe")
        running = {"running": {"startedAt": started}}
        self._say(pod, "Running", running, restarts, last, ready=not probe)
        asking = asyncio.create_task(self._probe(pod, plan, probe, running, restarts, last)) if probe else None
        try:
            code = await process.wait()
        finally:
            if asking is not None:
                asking.cancel()
            await end(process, float(pod["spec"].get("terminationGracePeriodSeconds", 30)))
        code = 128 - code if code < 0 else code
        text = words.read_text(errors="replace") if words.exists() else ""
        if code and not text.strip():
            text = log.read_bytes()[-LAST_LINES:].decode(errors="replace")
        about = {"exitCode": code, "message": text, "startedAt": started, "finishedAt": now()}
        return code, {"terminated": {**about, "reason": "Error" if code else "Completed"}}

    async def _probe(
        self, pod: Object, plan: Plan, probe: Object, running: Object, restarts: int, last: Object | None
    ) -> None:
        """Ask until it is ready, then from time to time; two failures make it unready."""
        check = probe["httpGet"]
        url = f"http://{addresses.LOOPBACK}:{plan.ports[str(check['port'])]}{check['path']}"
        ready, failures = False, 0
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as session:
            while True:
                try:
                    async with session.get(url) as answer:
                        good = answer.status < 400
                except (aiohttp.ClientError, OSError, TimeoutError):
                    good = False
                failures = 0 if good else failures + 1
                if good != ready and (good or failures >= int(probe.get("failureThreshold", 2))):
                    ready = good
                    self._say(pod, "Running", running, restarts, last, ready=ready)
                await asyncio.sleep(float(probe.get("periodSeconds", 2)) if ready else PROBE_SECONDS)

    def _say(
        self, pod: Object, phase: str, state: Object, restarts: int, last: Object | None, *, ready: bool = False
    ) -> None:
        name = next((one["name"] for one in pod["spec"].get("containers") or () if "name" in one), "")
        container = {"name": name, "ready": ready, "restartCount": restarts, "state": state}
        status = {
            "phase": phase,
            "podIP": addresses.LOOPBACK,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [container | ({"lastState": last} if last else {})],
        }
        self.store.status(kinds.POD, pod, status)

    def _plan(self, pod: Object) -> Plan:
        """Raises Unable for what takes a cluster, and Refused for an object that is missing as yet."""
        spec = pod["spec"]
        containers = [*spec["containers"], *(spec.get("initContainers") or ())]
        strangers = [item["image"] for item in containers if item["image"] not in map(image, MODULES)]
        if strangers or len(containers) > 1:
            unknown = ", ".join(strangers or [item["name"] for item in containers])
            raise Unable(f"{unknown}: one machine runs learnloop's own parts, one to a pod; use a cluster for this")
        main = containers[0]
        limits = {
            **(main.get("resources") or {}).get("requests", {}),
            **(main.get("resources") or {}).get("limits", {}),
        }
        if devices := sorted(key for key in limits if "/" in key):
            raise Unable(f"{', '.join(devices)}: pods get no devices on one machine; leave it out, or use a cluster")
        home = self._home(pod)
        folders = {
            volume["name"]: self._volume(pod, volume) for volume in [*(spec.get("volumes") or ()), *_routing(pod)]
        }
        paths = {item["mountPath"]: folders[item["name"]] for item in main.get("volumeMounts") or ()}
        ports: dict[str, int] = {}
        for item in main.get("ports") or ():
            number = addresses.free_port()
            ports |= {str(item["name"]): number, str(item["containerPort"]): number}
        words = home / "termination"
        paths[str(MOUNTED)] = words

        def translated(text: str) -> str:
            for path in sorted(paths, key=len, reverse=True):
                text = text if path == TEMPORARY else text.replace(path, str(paths[path]))
            return self.network.translated(text)

        env = {item["name"]: translated(self._value(pod, item)) for item in main.get("env") or ()}
        env |= {"TMPDIR": str(paths.get(TEMPORARY, home)), ENV_TERMINATION_LOG: str(words)}
        env |= {"LEARNLOOP_HOST": addresses.LOOPBACK}
        for port, variable in (("http", "LEARNLOOP_PORT"), ("metrics", names.ENV_PROBES_PORT)):
            env |= {variable: str(ports[port])} if port in ports else {}
        if routed := _routing(pod):
            env["LEARNLOOP_ROUTING_FILE"] = str(folders[routed[0]["name"]] / "routing.json")
        command = main.get("command") or [sys.executable, "-m", MODULES[main["image"].rpartition("/")[2]]]
        command = [sys.executable, *command[1:]] if command[0] in ("python", "python3") else command
        words_given = [*command, *map(translated, main.get("args") or ())]
        return Plan(words_given, environment_of(**env), ports)

    def _value(self, pod: Object, item: Object) -> str:
        source = item.get("valueFrom")
        if source is None:
            return str(item.get("value", "")).replace("$$", "$")
        if (source.get("fieldRef") or {}).get("fieldPath") == "metadata.name":
            return str(pod["metadata"]["name"])
        if chosen := source.get("secretKeyRef"):
            body = self.store.get(kinds.SECRET, pod["metadata"]["namespace"], chosen["name"])
            return base64.b64decode((body.get("data") or {})[chosen["key"]]).decode()
        raise Unable(
            f"env {item['name']}: one machine has values, secretKeyRef and a pod's metadata.name; use a cluster"
        )

    def _volume(self, pod: Object, volume: Object) -> Path:
        """A folder with what the volume holds."""
        metadata, target = pod["metadata"], self._home(pod) / str(volume["name"])
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        for source in (volume.get("projected") or {}).get("sources") or [volume]:
            if projection := source.get("serviceAccountToken"):
                account = pod["spec"].get("serviceAccountName", "default")
                who = metadata["name"], metadata["uid"]
                token = self.issuer.token(metadata["namespace"], account, projection["audience"], who)
                self._files(target, {projection["path"]: token}, None)
            elif chosen := source.get("configMap"):
                body = self.store.find(kinds.CONFIG_MAP, metadata["namespace"], chosen["name"])
                if body is None and not chosen.get("optional"):
                    raise Unable(f'configmap "{chosen["name"]}" not found')
                self._files(target, (body or {}).get("data") or {}, chosen.get("items"))
            elif chosen := source.get("secret"):
                body = self.store.get(kinds.SECRET, metadata["namespace"], chosen["secretName"])
                data = {key: base64.b64decode(text).decode() for key, text in (body.get("data") or {}).items()}
                self._files(target, data, chosen.get("items"))
            elif "emptyDir" not in source:
                kind = next((key for key in source if key != "name"), "nothing")
                raise Unable(f"volume {volume['name']}: {kind}: one machine has emptyDir, configMap, secret and tokens")
        return target

    def _files(self, folder: Path, data: Mapping[str, str], items: Sequence[Mapping[str, str]] | None) -> None:
        """Each at one instant, as the reader sees it."""
        wanted = {item["path"]: data[item["key"]] for item in items if item["key"] in data} if items else data
        for name, text in wanted.items():
            text, file = self.network.translated(text), folder / name
            if not file.exists() or file.read_text() != text:
                fresh = folder / f".{name}.new"
                fresh.touch(0o600)
                fresh.write_text(text)
                fresh.replace(file)


def _routing(pod: Object) -> list[Object]:
    """The ConfigMap that a policy server would watch, as a volume: it reads the table with this machine's addresses."""
    env = {item["name"]: item.get("value") for item in pod["spec"]["containers"][0].get("env") or ()}
    name = env.get("LEARNLOOP_ROUTING_CONFIGMAP")
    return [{"name": "learnloop-routing", "configMap": {"name": name, "optional": True}}] if name else []
