"""A comparison in a process of its own, at the lowest priority: `python -m … HELD RESTS`.

Reads a page a line, the first HELD of them of memories and the others of what was shown, until there are no more.
Writes one line, the answer. RESTS is `rests` where it is nobody's request.
"""

import os
import sys

from learnloop_dataplane.lifecycle.comparison import compare
from learnloop_dataplane.lifecycle.rests import Rests


def main() -> None:
    """Compares what standard input has."""
    os.nice(19)
    held, rests = int(sys.argv[1]), sys.argv[2] == "rests"
    pages = sys.stdin.buffer.read().splitlines()
    sys.stdout.buffer.write(compare(pages[:held], pages[held:], Rests() if rests else None).encode())


if __name__ == "__main__":
    main()
