"""`python hack/reference write|check`: writes the generated pages of docs/reference, or says which are stale."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reference import cli, events, kinds, metrics, reasons, rest, sdk, values

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


def wanted() -> dict[Path, str]:
    """Text of each generated page, by path."""
    pages = {FOLDER / "kinds" / name: text for name, text in kinds.pages()}
    for source in (cli, events, metrics, reasons, rest, sdk, values):
        pages |= {FOLDER / name: text for name, text in source.pages()}
    return pages


def main(arguments: list[str]) -> int:
    """Exit 1 with the names of the stale pages when checking; otherwise make them current."""
    if arguments not in (["write"], ["check"]):
        print("usage: python hack/reference write|check", file=sys.stderr)
        return 2
    pages = wanted()
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    gone = [path for path in (FOLDER / "kinds").glob("*.md") if path not in pages]
    for path in [*stale, *gone]:
        if arguments == ["check"]:
            print(
                f"{path.relative_to(FOLDER.parents[1])} is stale: run `make reference` and commit it", file=sys.stderr
            )
        elif path in pages:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages[path])
        else:
            path.unlink()
    return 1 if arguments == ["check"] and (stale or gone) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
