"""A folder is read at a glance: no more than 20 modules in one."""

import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[3]
MOST = 20


def test_no_folder_has_more_modules_than_a_reader_takes_in_at_once() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    modules = [PurePosixPath(line) for line in listed.splitlines()]
    count = Counter(str(path.parent) for path in modules if path.name not in ("__init__.py", "__main__.py"))
    crowded = {folder: number for folder, number in count.items() if number > MOST}
    assert not crowded, f"make rooms in {crowded}"
