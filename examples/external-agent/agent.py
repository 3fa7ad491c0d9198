"""An agent of your own that learns: it balances a pole with motors of its own (here: their equations), no Gymnasium.

The served policy decides, this process carries out, and what came of it is recorded for the next training run.

deployment.yaml runs it in the cluster, where it proves its namespace by its token and trusts learnloop's authority.
From a checkout, with a token of the namespace, as the chart asks for by default (with `tls.mode: off`; otherwise
https://, and LEARNLOOP_TLS_CA names the authority, `ca.crt` of the ConfigMap learnloop-ca):

    pip install ./crds ./agent_sdk
    kubectl create token default --audience learnloop > token
    kubectl port-forward service/balancer 8080 &
    export LEARNLOOP_TOKEN_FILE=token LEARNLOOP_ENDPOINT=http://localhost:8080
    python examples/external-agent/agent.py --episodes 20
"""

import argparse
import math
import os
import random
from pathlib import Path

from learnloop_sdk import Learnloop, StepResult, execute_with_learning, run

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02


class Balancer:
    """Cart and pole of Barto, Sutton and Anderson (1983): position, speed, angle, angular speed."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self.state = [0.0] * 4
        self.steps = 0
        self.travelled = 0.0

    def __call__(self, action: int | None) -> StepResult:
        """None starts over; 0 pushes left, 1 pushes right. The reward is 1 for every step the pole stays up."""
        if action is None:
            self.state = [self._random.uniform(-0.05, 0.05) for _ in range(4)]
            self.steps, self.travelled = 0, 0.0
            return StepResult(list(self.state))
        before = self.state[0]
        self._push(FORCE if action == 1 else -FORCE)
        self.steps += 1
        self.travelled += abs(self.state[0] - before)
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > math.radians(12)
        done = not fallen and self.steps >= 500
        return StepResult(
            observation=list(self.state),
            reward=1.0,
            terminated=fallen,
            truncated=done,
            success=done if fallen or done else None,
            values={"travelled": self.travelled},
        )

    def _push(self, force: float) -> None:
        place, speed, angle, turn = self.state
        total = CART + POLE
        moment = POLE * HALF_LENGTH
        pull = (force + moment * turn**2 * math.sin(angle)) / total
        turning = (GRAVITY * math.sin(angle) - math.cos(angle) * pull) / (
            HALF_LENGTH * (4 / 3 - POLE * math.cos(angle) ** 2 / total)
        )
        speeding = pull - moment * turning * math.cos(angle) / total
        self.state = [
            place + SECONDS * speed,
            speed + SECONDS * speeding,
            angle + SECONDS * turn,
            turn + SECONDS * turning,
        ]


async def main(agent: str, episodes: int) -> None:
    """Plays `episodes` one after the other; 0: until SIGTERM."""
    balancer = Balancer()
    # What the data plane has not acknowledged yet lies in the spool, and outlives this process.
    spool = Path(os.environ["SPOOL"]) if "SPOOL" in os.environ else None
    async with Learnloop(agent, fallback=lambda observation: int(observation[2] > 0), spool_directory=spool) as loop:
        played = 0
        while not episodes or played < episodes:
            result = await execute_with_learning(loop, balancer, task="balance the pole")
            played += 1
            print(f"episode {played}: {result.length} steps by {result.revision}, return {result.episode_return:.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--agent", default="balancer", help="name of the LearningAgent")
    parser.add_argument("--episodes", type=int, default=0, help="stop after so many; 0: never")
    options = parser.parse_args()
    run(main(options.agent, options.episodes))  # on SIGTERM it delivers what waits, and then ends
