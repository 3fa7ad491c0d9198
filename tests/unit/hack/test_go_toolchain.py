"""Which Go builds a program."""

from pathlib import Path

import pytest

from go_programs import go_toolchain


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose own Go is 1.26.8."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\necho go1.26.8\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")
    monkeypatch.setattr(go_toolchain, "cache_root", lambda: tmp_path / "cache")
    return go


def test_the_machines_own_go_is_taken_where_it_is_new_enough(on_path: Path) -> None:
    for wanted in ("", "1.9", "1.26.8", "1.26"):
        assert go_toolchain.go_command(wanted) == on_path


def test_a_newer_go_is_kept_beside_the_machines_own(on_path: Path, tmp_path: Path) -> None:
    newer = tmp_path / "cache" / "go-toolchain-1.27.3" / "bin" / "go"
    newer.parent.mkdir(parents=True)
    newer.touch()
    assert go_toolchain.go_command("1.27.3") == newer
    assert go_toolchain.go_command("1.26.8") == on_path
