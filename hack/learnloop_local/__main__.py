"""`learnloop local …`: the whole loop on one machine, without a cluster.

Any verb of `kubectl learnloop` works here by `learnloop local VERB …`.
"""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop
import yaml

from learnloop_local import machine, pods
from learnloop_local.store import Refused, Store
from learnloop_operator.cli import cluster, main as plugin
from learnloop_operator.core import conditions
from learnloop_operator.kube import kinds

WAIT_SECONDS = 60.0
SHOWN = (kinds.LEARNING_AGENT, kinds.TRAINING_JOB, kinds.MODEL_DEPLOYMENT, kinds.REWARD_POLICY)
app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__)
local = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=__doc__)
app.add_typer(local, name="local")


@local.command()
def up(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE…", help="YAML, as for kubectl apply -f")] = None,
    namespace: Annotated[str, typer.Option("-n", "--namespace", help="of objects that name none")] = "default",
) -> None:
    """Run everything until Ctrl-C, or `learnloop local down`."""
    os.umask(0o077)
    try:
        uvloop.run(_up(machine.state_folder(), files or [], namespace))
    except (machine.CannotStart, Refused, OSError, yaml.YAMLError) as error:
        print(f"learnloop local: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


@local.command()
def down() -> None:
    """Stop everything, and leave the data where it is."""
    os.umask(0o077)
    try:
        print(machine.stop(machine.state_folder(), WAIT_SECONDS))
    except (machine.CannotStart, OSError) as error:
        print(f"learnloop local: {error}", file=sys.stderr)
        raise typer.Exit(1) from error


async def _up(folder: Path, files: list[Path], namespace: str) -> None:
    """Until a signal, which is heard while it starts, too."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    work = asyncio.create_task(_work(machine.Machine(folder), files, namespace))
    await asyncio.wait([work, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        _say("stopping")
        work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def _work(here: machine.Machine, files: list[Path], namespace: str) -> None:
    rehearsal = machine.Machine(here.folder)  # refuses a file before anything starts
    for file in files:
        rehearsal.apply(file, namespace)
    async with here.running(_say):
        for file in files:
            for line in here.apply(file, namespace):
                _say(line)
        work = here.ended(), _lead(here), _follow(here.store), _console(here)
        parts = [asyncio.create_task(part) for part in work]
        try:
            await asyncio.gather(*parts)
        finally:
            for task in parts:
                task.cancel()
            await asyncio.gather(*parts, return_exceptions=True)


def _say(line: str) -> None:
    print(line, flush=True)


async def _lead(here: machine.Machine) -> None:
    """Say of each agent how a program of yours plays it."""
    before: set[tuple[str, str]] = set()
    while True:
        for agent in here.store.every(kinds.LEARNING_AGENT):
            place = agent["metadata"]["namespace"], agent["metadata"]["name"]
            if place not in before:
                before.add(place)
                _say(f"LearningAgent {place[1]}: `source {here.agent_settings(*place)}`, and your program plays it")
        await asyncio.sleep(0.5)


async def _follow(store: Store) -> None:
    """Say each change of what users look at, and why a pod waits."""
    before: dict[tuple[str, str], str] = {}
    while True:
        for kind in (*SHOWN, kinds.POD):
            for body in store.every(kind):
                status, key = body.get("status") or {}, (kind.kind, body["metadata"]["name"])
                sentence = conditions.find(status, "Ready").get("message", "")
                text = _waiting(status) if kind is kinds.POD else f"{status.get('phase', '')}: {sentence}"
                if text.strip(": ") and before.get(key) != text:
                    before[key] = text
                    _say(f"{kind.kind} {key[1]}: {text}")
        await asyncio.sleep(0.5)


def _waiting(status: dict[str, object]) -> str:
    containers = status.get("containerStatuses")
    state = containers[0].get("state", {}) if isinstance(containers, list) else {}
    return str((state.get("waiting") or {}).get("message", ""))


async def _console(here: machine.Machine) -> None:
    """The console as a process of its own, again whenever it ends. Its first line is its address."""
    log = here.folder / "logs" / "console.log"
    command = [sys.executable, "-m", "learnloop_local", "local", "console"]
    settings = pods.environment_of(LEARNLOOP_LOCAL=str(here.folder.parent))
    while True:
        log.unlink(missing_ok=True)
        process = await here.lifeline.start(command, settings, log)
        try:
            for _ in range(round(WAIT_SECONDS / 0.1)):
                if (text := log.read_text()).startswith("http") or process.returncode is not None:
                    break
                await asyncio.sleep(0.1)
            if text.startswith("http"):
                _say(f"console: {text.split()[0]}")
            await process.wait()
        finally:
            await pods.end(process, machine.GRACE_SECONDS)
        await asyncio.sleep(5.0)


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["local"] and arguments[1:2] and arguments[1] in plugin.VERBS:
        socket = machine.state_folder() / machine.SOCKET
        if not socket.exists():
            fix = "start it by `learnloop local up`, or name its folder in LEARNLOOP_LOCAL"
            print(f"error: nothing runs in {socket.parent}: {fix}", file=sys.stderr)
            return 1
        os.environ[cluster.ENV_SOCKET] = str(socket)
        return plugin.main(arguments[1:])
    try:
        app(arguments, prog_name="learnloop")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
