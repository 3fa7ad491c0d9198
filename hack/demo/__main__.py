"""`make demo`: the whole loop on a real Kubernetes, told from what the cluster says and nothing else.

The last line of the output is one JSON object with the figures; the exit status is not 0 when any part of
the story did not happen.
"""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo import install, learning, picture, sabotage
from demo.api import Api, connect
from demo.narrator import Narrator, StoryFailedError
from demo.recorder import Recorder
from demo.settings import Settings

BASELINE_AT_MOST = 30.0
PROMOTED_AT_LEAST = 400.0
CANARY_SHARE = 10
ROLLBACK_SECONDS = 60.0


def main() -> int:
    """Runs the demo; returns the exit status."""
    narrator, settings = Narrator(), Settings.read()
    try:
        kubectl = install.prepare(settings, narrator)
        with connect(kubectl) as api, Recorder(api, settings) as recorder:
            figures = tell(api, settings, narrator)
        if settings.picture:
            picture.draw(recorder.samples, settings.picture)
            narrator.say(f"drew the run in {settings.picture}")
    except StoryFailedError as error:
        narrator.fail(str(error))
        return 1
    except subprocess.CalledProcessError as error:
        narrator.fail(f"{' '.join(map(str, error.cmd[:6]))} …: {(error.stderr or error.stdout or '').strip()}")
        return 1
    figures["total_seconds"] = round(narrator.elapsed(), 1)
    print(json.dumps(figures), flush=True)
    return 0


def tell(api: Api, settings: Settings, narrator: Narrator) -> dict[str, float]:
    """Both halves of the story, then what they must show."""
    _fresh_namespace(api, settings)
    learned = learning.watch_it_learn(api, settings, narrator)
    _require(learned.baseline_return <= BASELINE_AT_MOST, f"baseline return {learned.baseline_return:.1f} is above 30")
    _require(
        learned.promoted_return >= PROMOTED_AT_LEAST, f"promoted return {learned.promoted_return:.1f} is below 400"
    )
    back = sabotage.watch_it_come_back(api, settings, narrator, learned.model_uri, learned.model_sha256)
    _require(back.max_weight <= CANARY_SHARE, f"the sabotaged model had {back.max_weight} % of the episodes")
    _require(back.max_share * 100 <= CANARY_SHARE, f"the sabotaged model saw {back.max_share:.1%} of the episodes")
    _require(back.rollback_seconds <= ROLLBACK_SECONDS, f"rollback took {back.rollback_seconds:.1f} s, more than 60 s")
    sabotage.restore(api, settings)
    narrator.chapter("Where everything came from")
    print(api.run("get", "-n", settings.namespace, "learningagents,trainingjobs,modeldeployments,rewardpolicies"))
    return {
        "baseline_return": round(learned.baseline_return, 1),
        "promoted_return": round(learned.promoted_return, 1),
        "training_workers": learned.training_workers,
        "loop_seconds": round(learned.loop_seconds, 1),
        "bad_model_max_weight": back.max_weight,
        "bad_model_max_share": round(back.max_share, 4),
        "bad_model_rollback_seconds": round(back.rollback_seconds, 1),
    }


def _fresh_namespace(api: Api, settings: Settings) -> None:
    """The story starts from nothing; only the demo's own namespace is ever deleted."""
    api.run("delete", "namespace", settings.namespace, "--ignore-not-found", "--wait", "--timeout=120s")
    api.run("create", "namespace", settings.namespace)
    api.run("label", "namespace", settings.namespace, "pod-security.kubernetes.io/enforce=restricted")


def _require(happened: bool, otherwise: str) -> None:
    if not happened:
        raise StoryFailedError(otherwise)


if __name__ == "__main__":
    sys.exit(main())
