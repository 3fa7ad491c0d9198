"""`make demo-language`: a model that speaks learns to use tools, and two bad adapters of it are stopped.

All by the YAML of examples/tiny-language-model; this program applies it, and tells what the cluster says. The last line
of the output is one JSON object with the figures; the exit status is not 0 when any part of the story did not happen.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from demo import afterwards, bad_model, cluster_choice, install, source_cluster
from demo.api import Api, connect
from demo.narrator import Narrator
from demo.settings import SOURCE, Settings
from demo.story import Figures, ended_on_failure, processor_seconds, require, run_story
from demo_language import adapters, learning, tiny_model
from toolkit.main_program import run_as_program
from toolkit.work_groups import side_by_side

AGENT = "tiny"
IMAGES = ("llama-cpp",)
BASELINE_AT_MOST, PROMOTED_AT_LEAST = 0.35, 0.65
CANARY_SHARE = 10


def main() -> int:
    """Runs the demo; returns the exit status."""
    narrator, settings = Narrator(), Settings.read(AGENT)
    choice = cluster_choice.choose(settings)
    narrator.say(f"the demo runs on {choice.why}")
    figures: Figures = {}
    with ended_on_failure(settings, choice.kind):
        cluster = install.reach(settings, choice, narrator, IMAGES)
        finish = [source_cluster.finish] if choice.kind == SOURCE else []
        side_by_side(lambda: install.install(cluster, narrator), *finish)
        with connect(cluster.kubectl) as api:
            figures.update(run_story(api, settings, lambda: _tell(api, settings, narrator)))
        afterwards.say_what_next(cluster.kubectl, settings, choice.kind)
    figures["processor_seconds"] = round(processor_seconds(), 1)
    figures["total_seconds"] = round(narrator.elapsed(), 1)
    print(json.dumps(figures), flush=True)
    return 0


def _tell(api: Api, settings: Settings, narrator: Narrator) -> Figures:
    base = tiny_model.make(api, settings, narrator)
    learned = learning.watch_it_learn(
        api, settings, narrator, base, when_proven=lambda: adapters.begin_teaching(api, settings)
    )
    require(learned.baseline <= BASELINE_AT_MOST, f"the base model solves {learned.baseline:.2f}, above 0.35")
    require(learned.promoted >= PROMOTED_AT_LEAST, f"the promoted model solves {learned.promoted:.2f}, below 0.65")
    stopped = adapters.watch_a_gate_stop_it(api, settings, narrator)
    require(stopped.max_weight == 0, f"the jail-broken adapter had {stopped.max_weight} % of the conversations")
    back = adapters.watch_it_come_back(api, settings, narrator)
    require(back.max_weight <= CANARY_SHARE, f"the careless adapter had {back.max_weight} % of the conversations")
    require(back.max_share * 100 <= CANARY_SHARE, f"the careless adapter had {back.max_share:.1%} of them")
    bad_model.restore(api, settings)
    narrator.chapter("Where everything came from")
    print(api.run("get", "-n", settings.namespace, "learningagents,trainingjobs,modeldeployments,rewardpolicies"))
    afterwards.bring_to_rest(api, settings, narrator)
    return {
        "baseline_success": round(learned.baseline, 4),
        "promoted_success": round(learned.promoted, 4),
        "users_success": round(learned.users, 4),
        "recorded_episodes": learned.recorded,
        "loop_seconds": round(learned.seconds, 1),
        "jailbroken_max_weight": stopped.max_weight,
        "jailbroken_failures": stopped.failures,
        "jailbroken_samples": stopped.samples,
        "careless_max_weight": back.max_weight,
        "careless_max_share": round(back.max_share, 4),
        "careless_rollback_seconds": round(back.rollback_seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(run_as_program("make demo-language", main))
