"""`make bench-operator`."""

import argparse
import asyncio
import json
import sys

from bench.operator.control_plane import control_plane
from bench.operator.thousand import Size, measure


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sides", default="ours,peer")
    parser.add_argument("--objects", type=int, default=1000)
    options = parser.parse_args()
    size = Size(100, 20, 5, 5.0) if options.quick else Size(options.objects)
    figures = {}
    for side in options.sides.split(","):
        with control_plane() as kubeconfig:
            found = asyncio.run(measure(side, kubeconfig, size))
            figures |= {(key if side == "ours" else f"peer_{key}"): value for key, value in found.items()}
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
