"""The audit record of interventions: one JSON object a line, in a file of this rank, made durable with the result."""

import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds.training.safety import Intervention

VARIABLE = "LEARNLOOP_AUDIT_LOG"
LARGEST = 64 << 20  # bytes of one rank's file; interventions beyond it are only counted


class Trail:
    """Appends to the file named by LEARNLOOP_AUDIT_LOG; without it, a file of this process in /tmp."""

    def __init__(self, agent: str, environ: Mapping[str, str] = os.environ) -> None:
        """`agent`: the run's name."""
        self.path = Path(environ.get(VARIABLE, f"/tmp/learnloop-audit-{os.getpid()}.jsonl"))
        self._agent = agent

    def write(
        self,
        members: NDArray[np.int64],
        wanted: NDArray[np.generic],
        reward: NDArray[np.float32],
        constraints: list[list[str]],
        fallback: NDArray[np.bool_],
        worth: NDArray[np.float32] | None = None,
        *,
        exploring: bool,
    ) -> None:
        """One line for each row; `members` are the environments' numbers, `worth` the policy's own estimates."""
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        if self.path.exists() and self.path.stat().st_size > LARGEST:
            return
        with self.path.open("a", encoding="utf-8") as file:
            for row, member in enumerate(members):
                line = Intervention(
                    timestamp=now,
                    agent_id=f"{self._agent}/{member}",
                    action_hash=hashlib.sha256(np.asarray(wanted[row], dtype="<f4").tobytes()).hexdigest(),
                    reward=float(reward[row]),
                    q_value=None if worth is None else float(worth[row]),
                    exploration_flag=exploring,
                    constraints=constraints[row],
                    fallback=bool(fallback[row]),
                )
                file.write(line.model_dump_json() + "\n")

    def read(self) -> bytes:
        """All lines so far."""
        return self.path.read_bytes() if self.path.exists() else b""
