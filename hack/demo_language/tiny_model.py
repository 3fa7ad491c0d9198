"""Makes the base model in the cluster, and what else the trainer's image makes there, by Jobs of the example."""

import json
from pathlib import Path
from typing import Any

from demo.api import Api
from demo.narrator import Narrator
from demo.settings import ROOT, Settings

EXAMPLE = ROOT / "examples" / "tiny-language-model"
MAKING_SECONDS = 600


def make(api: Api, settings: Settings, narrator: Narrator) -> str:
    """Applies model.yaml; returns the digest of the model's folder. Raises CalledProcessError where its Job fails."""
    narrator.chapter("A language model, made from nothing")
    programs = {path.name: path.read_text() for path in sorted(EXAMPLE.glob("*.py"))}
    mounted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": EXAMPLE.name}, "data": programs}
    api.run("apply", "-n", settings.namespace, "-f", "-", stdin=json.dumps(mounted))
    apply(api, settings, EXAMPLE / "model.yaml")
    made = last_line(api, settings, "make-model")
    narrator.say(f"{made['parameters']:,} parameters, {made['words']} words; sha256 {made['sha256'][:12]}…")
    return str(made["sha256"])


def apply(api: Api, settings: Settings, file: Path, **words: str) -> None:
    """Applies a file of the example with its words in capitals filled in."""
    text = file.read_text()
    for word, value in {"TRAINER_IMAGE": api.trainer_image(), **words}.items():
        text = text.replace(word, value)
    api.run("apply", "-n", settings.namespace, "-f", "-", stdin=text)


def last_line(api: Api, settings: Settings, job: str) -> dict[str, Any]:
    """The last line of a Job's output, as JSON, once it is complete."""
    timeout = f"--timeout={MAKING_SECONDS}s"
    api.run("wait", "-n", settings.namespace, "--for=condition=complete", timeout, f"job/{job}")
    facts: dict[str, Any] = json.loads(api.run("logs", "-n", settings.namespace, f"job/{job}").strip().splitlines()[-1])
    return facts
