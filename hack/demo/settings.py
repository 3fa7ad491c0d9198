"""What the demo is told by its environment."""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_NAMESPACE = "learnloop-system"
RELEASE = "learnloop"
AGENT = "cartpole"


@dataclass(frozen=True)
class Settings:
    """`CONTEXT` names the user's own cluster; without it one is made on this machine."""

    context: str | None
    namespace: str
    values: tuple[Path, ...]
    keep: bool
    picture: Path | None

    @classmethod
    def read(cls) -> "Settings":
        """Reads CONTEXT, DEMO_NAMESPACE, VALUES (colon-separated Helm values files), KEEP=1 and PICTURE (an SVG)."""
        context = os.environ.get("CONTEXT") or None
        values = tuple(Path(item) for item in os.environ.get("VALUES", "").split(":") if item)
        return cls(
            context=context,
            namespace=os.environ.get("DEMO_NAMESPACE", "learnloop-demo"),
            values=values,
            keep=os.environ.get("KEEP") == "1",
            picture=Path(os.environ["PICTURE"]) if os.environ.get("PICTURE") else None,
        )
