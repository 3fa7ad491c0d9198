"""The dashboards as files of the chart."""

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.learning import loop, memory, model_performance, training_overview
from dashboards.operations import deployment_health, operator

FOLDER = Path(__file__).resolve().parents[2] / "charts" / "learnloop" / "dashboards"
PAGES = {
    "rl-training-overview": training_overview,
    "model-performance": model_performance,
    "deployment-health": deployment_health,
    "loop": loop,
    "memory": memory,
    "operator": operator,
}


def wanted() -> dict[Path, str]:
    """Text of each file, by path."""
    return {
        FOLDER / f"{name}.json": json.dumps(make().build(), cls=JSONEncoder, sort_keys=True, indent=2) + "\n"
        for name, make in PAGES.items()
    }
