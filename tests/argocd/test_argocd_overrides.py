"""Argo CD's own command reads the shipped ConfigMap, and finds the health and the actions that our cases name."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from testing.gitops.argocd_cases import cases, timeless

ROOT = Path(__file__).resolve().parents[2]
CONFIG_MAP = ROOT / "charts" / "argocd" / "argocd-cm.yaml"
CHANGED = "Following fields have been changed:\n\n"

Overrides = Callable[..., str]


@pytest.fixture(scope="module")
def overrides(argocd_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Overrides:
    """Runs `argocd admin settings resource-overrides`; what an action makes of an object is printed whole."""
    folder = tmp_path_factory.mktemp("argocd")
    show = folder / "show-the-second"
    show.write_text('#!/bin/sh\ncat "$2"\n', encoding="utf-8")
    show.chmod(0o755)
    environment = {**os.environ, "KUBECTL_EXTERNAL_DIFF": str(show), "ARGOCD_BINARY_NAME": "argocd", "TZ": "UTC"}

    def run(*arguments: str) -> str:
        command = [str(argocd_program), "admin", "settings", "resource-overrides", *arguments]
        command += ["--argocd-cm-path", str(CONFIG_MAP)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=folder
        )
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.mark.parametrize(("folder", "case"), cases("health_test.yaml", "tests"))
def test_argo_cd_finds_the_health_that_the_case_names(overrides: Overrides, folder: Path, case: dict) -> None:
    output = overrides("health", str(folder / case["inputPath"]))
    wanted = case["healthStatus"]
    assert output == f"STATUS: {wanted['status']}\nMESSAGE: {wanted.get('message', '')}\n"


@pytest.mark.parametrize(("folder", "case"), cases("actions/action_test.yaml", "discoveryTests"))
def test_argo_cd_offers_the_actions_that_the_case_names(overrides, folder, case):
    head, *lines = overrides("list-actions", str(folder / case["inputPath"])).splitlines()
    assert head.split() == ["NAME", "DISABLED"]
    wanted = sorted([item["name"], str(item.get("disabled", False)).lower()] for item in case["result"])
    assert [line.split() for line in lines] == wanted


@pytest.mark.parametrize(("folder", "case"), cases("actions/action_test.yaml", "actionTests"))
def test_argo_cd_changes_what_the_case_says(overrides: Overrides, folder: Path, case: dict) -> None:
    output = overrides("run-action", str(folder / case["inputPath"]), case["action"])
    assert output.startswith(CHANGED), output
    wanted = yaml.safe_load((folder / case["expectedOutputPath"]).read_text(encoding="utf-8"))
    assert timeless(yaml.safe_load(output.removeprefix(CHANGED))) == timeless(wanted)
