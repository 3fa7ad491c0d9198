"""`python -m bench.gateway.model_server FOLDER`: a server that says the same to everything, until its input ends."""

import sys
from pathlib import Path

from testing.language.scripted_server import ScriptedServer

ANSWER = "The key holds four."
PAUSE = 0.004
"""Seconds between two tokens."""

if __name__ == "__main__":
    with ScriptedServer(Path(sys.argv[1]), lambda _: ANSWER, PAUSE) as server:
        print(server.url, flush=True)
        sys.stdin.read()
