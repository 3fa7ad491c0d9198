"""Argo CD's health checks and actions, run as Argo CD runs them: Lua 5.1 with almost no library."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from lupa import lua51

from learnloop_api.names import VERBS
from testing.gitops.argocd_cases import FOLDER, cases, timeless

ROOT = Path(__file__).resolve().parents[3]
KINDS = sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())
# Argo CD opens base, table and package, and an os module that only tells the time.
CLOSED = ("io", "string", "math", "debug", "coroutine", "python", "dofile", "loadfile")


def run(script: Path, obj: dict):
    """The script's result for `obj`, as Python values."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    for name in CLOSED:
        lua.globals()[name] = None
    lua.execute("os = { date = os.date, time = os.time }; package.loaded.os = os")
    lua.globals().obj = lua.table_from(obj, recursive=True)
    return plain(lua.execute(script.read_text()))


def plain(value):
    if lua51.lua_type(value) != "table":
        return value
    items = dict(value.items())
    if items and all(isinstance(key, int) for key in items):
        return [plain(items[key]) for key in sorted(items)]
    return {key: plain(item) for key, item in items.items()}


@pytest.mark.parametrize(("folder", "case"), cases("health_test.yaml", "tests"))
def test_health_says_what_the_operator_says(folder: Path, case: dict) -> None:
    obj = yaml.safe_load((folder / case["inputPath"]).read_text())
    assert run(FOLDER / "health.lua", obj) == case["healthStatus"]


@pytest.mark.parametrize(("folder", "case"), cases("actions/action_test.yaml", "discoveryTests"))
def test_an_action_is_offered_when_it_would_do_something(folder: Path, case: dict) -> None:
    obj = yaml.safe_load((folder / case["inputPath"]).read_text())
    offered = run(folder / "discovery.lua", obj)
    wanted = {item["name"]: {key: value for key, value in item.items() if key != "name"} for item in case["result"]}
    assert offered == wanted


@pytest.mark.parametrize(("folder", "case"), cases("actions/action_test.yaml", "actionTests"))
def test_an_action_changes_exactly_what_it_says(folder: Path, case: dict) -> None:
    obj = yaml.safe_load((folder / case["inputPath"]).read_text())
    wanted = yaml.safe_load((folder / case["expectedOutputPath"]).read_text())
    changed = run(folder / case["action"] / "action.lua", obj)
    assert timeless(changed) == timeless(wanted)


def test_an_approval_without_a_waiting_step_is_refused() -> None:
    folder = FOLDER / "ModelDeployment"
    obj = yaml.safe_load((folder / "testdata" / "healthy.yaml").read_text())
    with pytest.raises(lua51.LuaError, match="nothing waits for approval"):
        run(folder / "actions" / "approve" / "action.lua", obj)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_only_tested_actions(kind: str) -> None:
    scripts = {path.parent.name for path in (FOLDER / kind / "actions").glob("*/action.lua")}
    if scripts:
        tests = yaml.safe_load((FOLDER / kind / "actions" / "action_test.yaml").read_text())
        assert {case["action"] for case in tests["actionTests"]} == scripts


def test_all_five_kinds_are_covered() -> None:
    assert KINDS == ["LearningAgent", "MemoryService", "ModelDeployment", "RewardPolicy", "TrainingJob"]


def test_the_config_map_patch_is_up_to_date_and_reads_like_the_files() -> None:
    subprocess.run([sys.executable, str(ROOT / "hack" / "argocd-customizations"), "--check"], check=True, timeout=240)
    data = yaml.safe_load((ROOT / "charts" / "argocd" / "argocd-cm.yaml").read_text())["data"]
    assert len(data) == 9
    actions = yaml.safe_load(data["resource.customizations.actions.learnloop.dev_ModelDeployment"])
    assert [item["name"] for item in actions["definitions"]] == sorted([*VERBS, "suspend"])
    assert actions["discovery.lua"] == (FOLDER / "ModelDeployment" / "actions" / "discovery.lua").read_text()


def test_the_config_map_is_whole_for_argo_cd_reads_no_other() -> None:
    whole = yaml.safe_load((ROOT / "charts" / "argocd" / "argocd-cm.yaml").read_text())
    assert (whole["apiVersion"], whole["kind"], whole["metadata"]["name"]) == ("v1", "ConfigMap", "argocd-cm")
    assert whole["metadata"]["labels"]["app.kubernetes.io/part-of"] == "argocd"
    assert all(key.split("_")[0].endswith("learnloop.dev") for key in whole["data"]), "no other settings"
