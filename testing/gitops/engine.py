"""The common part of the GitOps engines: processes of this machine, kubectl, and a watch of what they manage."""

import json
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

TICK = 0.1


@dataclass(frozen=True)
class Sighting:
    """The status of an object at a moment (time.monotonic)."""

    at: float


S = TypeVar("S", bound=Sighting)


class Engine(ABC, Generic[S]):
    """One that manages the cluster of `kubeconfig`. `sightings`: each change of the status of an object, in order."""

    def __init__(self, kubeconfig: Path, folder: Path, managed: dict[str, str]) -> None:
        """`managed` is the kind of the objects that are watched, as CustomObjectsApi names it."""
        self._kubeconfig, self._folder, self._managed = kubeconfig, folder, managed
        self._objects = client.CustomObjectsApi(config.new_client_from_config(str(kubeconfig)))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sightings: dict[str, list[S]] = {}
        self._stopped, self._ports = False, ExitStack()

    @abstractmethod
    def _sighting(self, managed: dict[str, Any]) -> S:
        """The object's status now."""

    @abstractmethod
    def _story(self, name: str) -> str:
        """Hints for finding out why the object is not as wanted."""

    def stop(self) -> None:
        """Everything that was started ends."""
        self._stopped = True
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ports.close()

    def until(self, name: str, what: str, wanted: Callable[[S], bool], seconds: float) -> S:
        """The first status of the object that is as wanted.

        Raises:
            AssertionError: there is none within `seconds`, or a process ended; carries what was seen and the log.
        """
        deadline = time.monotonic() + seconds
        while True:
            for sighting in list(self.sightings.get(name, ())):
                if wanted(sighting):
                    return sighting
            for program, process in self._processes.items():
                assert process.poll() is None, f"{program} ended with {process.returncode}: {self.log(program)[-1500:]}"
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} was not {what} within {seconds:.0f} s: {self._story(name)}")
            time.sleep(TICK)

    def log(self, program: str) -> str:
        """All that the process has said."""
        return (self._folder / f"{program}.log").read_text(encoding="utf-8", errors="replace")

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Raises AssertionError with what it said."""
        program = self._kubeconfig.parent / "bin" / "kubectl"
        command = [str(program), "--kubeconfig", str(self._kubeconfig), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def established(self, *definitions: str) -> None:
        """`kubectl wait` gives up on a definition that has no conditions yet."""
        deadline = time.monotonic() + 60.0
        for definition in definitions:
            while not _served(json.loads(self.kubectl("get", "crd", definition, "-o", "json"))):
                assert time.monotonic() < deadline, f"{definition} is not served"
                time.sleep(TICK)

    def _launch(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        """Begin a process, whose log is `name`.log in the folder."""
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, env=environment, cwd=self._folder, stdout=log, stderr=log)

    def _watch(self) -> None:
        """Follow what is managed until `stop`."""
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        while not self._stopped:
            try:
                for event in watch.Watch().stream(
                    self._objects.list_namespaced_custom_object, **self._managed, timeout_seconds=3600
                ):
                    self._saw(event["object"])
            except (client.ApiException, HTTPError, OSError, ValueError) as error:
                if not self._stopped:
                    print(f"the watch of {self._managed['plural']} restarts: {error}")
                    time.sleep(TICK)

    def _saw(self, managed: dict[str, Any]) -> None:
        sighting, story = self._sighting(managed), self.sightings.setdefault(managed["metadata"]["name"], [])
        if not story or replace(sighting, at=story[-1].at) != story[-1]:
            story.append(sighting)


def _served(definition: dict[str, Any]) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)
