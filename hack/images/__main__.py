"""python3 hack/images build | list — see README.md next to this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from images.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
