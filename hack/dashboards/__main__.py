"""`python hack/dashboards write|check`: writes charts/learnloop/dashboards, or says which of them are stale."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dashboards.files import FOLDER, wanted


def main(arguments: list[str]) -> int:
    """Exit 1 with the names of the stale ones when checking; otherwise make them current."""
    if arguments not in (["write"], ["check"]):
        print("usage: python hack/dashboards write|check", file=sys.stderr)
        return 2
    files = wanted()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    gone = [path for path in FOLDER.glob("*.json") if path not in files]
    if arguments == ["check"]:
        for path in [*stale, *gone]:
            print(f"{path.name} is stale: run `make dashboards` and commit it", file=sys.stderr)
        return 1 if stale or gone else 0
    FOLDER.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(files[path])
    for path in gone:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
