"""`make demo`: the whole loop on a real Kubernetes, told from what the cluster says and nothing else.

The last line of the output is one JSON object with the figures; the exit status is not 0 when any part of
the story did not happen, and the last line then says which.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo import afterwards, bad_model, cluster_choice, install, learning, picture, source_cluster
from demo.api import Api, connect
from demo.narrator import Narrator
from demo.recorder import Recorder
from demo.settings import SOURCE, Settings
from demo.story import ended_on_failure, processor_seconds, require, told
from toolkit.main_program import run_as_program
from toolkit.work_groups import side_by_side

BASELINE_AT_MOST = 30.0
PROMOTED_AT_LEAST = 400.0
CANARY_SHARE = 10
ROLLBACK_SECONDS = 60.0


def main() -> int:
    """Runs the demo; returns the exit status."""
    narrator, settings = Narrator(), Settings.read()
    choice = cluster_choice.choose(settings)
    narrator.say(f"the demo runs on {choice.why}")
    figures: dict[str, float] = {}

    def story() -> None:
        with connect(found.kubectl) as api:
            recorder = Recorder(api, settings)
            figures.update(tell(api, settings, narrator, recorder))
        if settings.picture:
            picture.draw(recorder.samples, settings.picture)
            narrator.say(f"drew the run in {settings.picture}")
        afterwards.say_what_next(found.kubectl, settings, choice.kind)

    with ended_on_failure(settings, choice.kind):
        found = install.reach(settings, choice, narrator)
        # The training operator starts before agents play: a random policy plays as fast as it can and would slow it.
        side_by_side(
            lambda: install.install(found, narrator), *([source_cluster.finish] if choice.kind == SOURCE else [])
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

    return told(api, settings, story)


def _tell(api: Api, settings: Settings, narrator: Narrator) -> dict[str, float]:
    learned = learning.watch_it_learn(api, settings, narrator)
    require(learned.baseline_return <= BASELINE_AT_MOST, f"baseline return {learned.baseline_return:.1f} is above 30")
    require(learned.promoted_return >= PROMOTED_AT_LEAST, f"promoted return {learned.promoted_return:.1f} is below 400")
    back = bad_model.watch_it_come_back(api, settings, narrator, learned.model_uri, learned.model_sha256)
    require(back.max_weight <= CANARY_SHARE, f"the sabotaged model had {back.max_weight} % of the episodes")
    require(back.max_share * 100 <= CANARY_SHARE, f"the sabotaged model saw {back.max_share:.1%} of the episodes")
    require(back.rollback_seconds <= ROLLBACK_SECONDS, f"rollback took {back.rollback_seconds:.1f} s, more than 60 s")
    bad_model.restore(api, settings)
    narrator.chapter("Where everything came from")
    print(api.run("get", "-n", settings.namespace, "learningagents,trainingjobs,modeldeployments,rewardpolicies"))
    afterwards.bring_to_rest(api, settings, narrator)
    return {
        "baseline_return": round(learned.baseline_return, 1),
        "promoted_return": round(learned.promoted_return, 1),
        "training_workers": learned.training_workers,
        "loop_seconds": round(learned.loop_seconds, 1),
        "bad_model_max_weight": back.max_weight,
        "bad_model_max_share": round(back.max_share, 4),
        "bad_model_rollback_seconds": round(back.rollback_seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(run_as_program("make demo", main))
