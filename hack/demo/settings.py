"""The demo's settings from its environment."""

import os
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import Refusal

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_NAMESPACE = "learnloop-system"
RELEASE = "learnloop"
AGENT = "cartpole"
SOURCE, KIND, K3D = "source", "kind", "k3d"


@dataclass(frozen=True)
class Settings:
    """`context` names the user's own cluster; without it one is made on this machine, by the means `cluster` names.

    `agent` is the LearningAgent of the story.
    """

    context: str | None
    namespace: str
    values: tuple[Path, ...]
    keep: bool
    cluster: str | None = None
    picture: Path | None = None
    agent: str = AGENT
    quickstart: Path = ROOT / "examples" / "quickstart" / "quickstart.yaml"

    @classmethod
    def read(cls, agent: str = AGENT) -> "Settings":
        """Reads CONTEXT, CLUSTER, DEMO_NAMESPACE, VALUES (files, colon-separated), KEEP=1 and PICTURE (an SVG).

        Raises:
            Refusal: CLUSTER is none of source, kind and k3d.
        """
        cluster = os.environ.get("CLUSTER") or None
        if cluster not in (None, SOURCE, KIND, K3D):
            raise Refusal(f"CLUSTER is {cluster!r}; set it to source, kind or k3d, or leave it out")
        values = tuple(Path(item) for item in os.environ.get("VALUES", "").split(":") if item)
        return cls(
            context=os.environ.get("CONTEXT") or None,
            namespace=os.environ.get("DEMO_NAMESPACE", "learnloop-demo"),
            values=values,
            keep=os.environ.get("KEEP") == "1",
            picture=Path(os.environ["PICTURE"]) if os.environ.get("PICTURE") else None,
            cluster=cluster,
            agent=agent,
        )
