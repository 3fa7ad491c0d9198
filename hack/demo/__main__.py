"""`make demo`: the whole loop on a real Kubernetes, told from what the cluster says and nothing else.

The last line of the output is one JSON object with the figures; the exit status is not 0 when any part of
the story did not happen, and the last line then says which.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo import afterwards, cluster_choice, install, picture, source_cluster
from demo.api import Api, connect
from demo.halves import both_halves
from demo.narrator import Narrator
from demo.recorder import Recorder
from demo.settings import SOURCE, Settings
from demo.story import ended_on_failure, processor_seconds, run_story
from toolkit.main_program import run_as_program
from toolkit.work_groups import side_by_side


def main() -> int:
    """Runs the demo; returns the exit status."""
    narrator, settings = Narrator(), Settings.read()
    choice = cluster_choice.choose(settings)
    narrator.say(f"the demo runs on {choice.why}")
    figures: dict[str, float] = {}

    def story() -> None:
        with connect(cluster.kubectl) as api:
            recorder = Recorder(api, settings)
            figures.update(tell(api, settings, narrator, recorder))
        if settings.picture:
            picture.draw(recorder.samples, settings.picture)
            narrator.say(f"drew the run in {settings.picture}")
        afterwards.say_what_next(cluster.kubectl, settings, choice.kind)

    with ended_on_failure(settings, choice.kind):
        cluster = install.reach(settings, choice, narrator)
        # The training operator starts before agents play: a random policy plays as fast as it can and would slow it.
        side_by_side(
            lambda: install.install(cluster, narrator), *([source_cluster.finish] if choice.kind == SOURCE else [])
        )
        story()
    figures["processor_seconds"] = round(processor_seconds(), 1)
    figures["total_seconds"] = round(narrator.elapsed(), 1)
    print(json.dumps(figures), flush=True)
    return 0


def tell(api: Api, settings: Settings, narrator: Narrator, recorder: Recorder) -> dict[str, float]:
    """Both halves of the story, what they must show, and rest."""

    def story() -> dict[str, float]:
        with recorder:
            return _tell(api, settings, narrator)

    return run_story(api, settings, story)


def _tell(api: Api, settings: Settings, narrator: Narrator) -> dict[str, float]:
    figures = both_halves(api, settings, narrator)
    afterwards.bring_to_rest(api, settings, narrator)
    return figures


if __name__ == "__main__":
    sys.exit(run_as_program("make demo", main))
