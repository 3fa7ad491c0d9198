"""`propose`: the newest proven model stands in the manifest, and every other character of it as before."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.names import LABEL_AGENT
from learnloop_operator.cli.objects import CommandError
from learnloop_operator.cli.proposing import ModelInManifest, proposal, propose, with_model

OLD, NEW = "a" * 64, "b" * 64
MANIFEST = f"""# The walker of team A.
apiVersion: v1
kind: ConfigMap
metadata: {{name: walker}}
---
apiVersion: learnloop.dev/v1alpha1
kind: LearningAgent
metadata:
  name: walker   # the name
spec:
  task: {{observations: 4, actions: 2}}
  deployment:
    model:
      uri: "learnloop://team-a/{OLD}"  # merged on Monday
      sha256: {OLD}
    template: {{}}
"""
FLOW = f"kind: ModelDeployment\nmetadata: {{name: walker}}\nspec: {{model: {{uri: 's3://m/x.onnx', sha256: {OLD}}}}}\n"
UNIFORM = """kind: ModelDeployment
metadata: {name: walker}
spec:
  model:
    uri: uniform://discrete/2?observations=4
  suspend: false
"""
MODEL = ModelInManifest(f"learnloop://team-a/{NEW}", NEW)


def job(name: str, phase: str = "Validated", agent: str = "walker", at: str = "2026-01-31T12:00:00Z") -> dict[str, Any]:
    figures = {"episodes": 100, "mean": 480.0, "iqm": 481.0, "ciLow": 470.0, "ciHigh": 490.0}
    return {
        "metadata": {"name": name, "labels": {LABEL_AGENT: agent}},
        "status": {
            "phase": phase,
            "finishedAt": at,
            "artifact": MODEL._asdict(),
            "evaluation": figures,
            "gates": [{"name": "minReturn", "passed": True, "message": "470 | <b>@all</b> is above 195"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Validated", "message": "it is proven"}],
        },
    }


class Jobs:
    """A namespace with these TrainingJobs."""

    def __init__(self, *jobs: dict[str, Any]) -> None:
        self.jobs = jobs

    def every(self, plural: str) -> list[dict[str, Any]]:
        assert plural == "trainingjobs"
        return list(self.jobs)


def proposed(file: Path, *jobs: dict[str, Any], **options: Any) -> str:
    return propose(Jobs(*jobs), "walker", str(file), **options)


def test_only_address_and_digest_change_and_the_second_time_nothing(tmp_path: Path) -> None:
    file, body = tmp_path / "walker.yaml", tmp_path / "body.md"
    file.write_text(MANIFEST)
    file.chmod(0o640)
    older = job("walker-6", at="2026-01-30T12:00:00Z")
    older["status"]["artifact"] = ModelInManifest("learnloop://team-a/c", "c" * 64)._asdict()
    jobs = (job("walker-7"), older, job("walker-8", "Failed"), job("other-9", agent="other", at="2026-02-01T00:00:00Z"))
    assert "walker-7" in proposed(file, *jobs, body=str(body))
    expected = MANIFEST.replace(f'"learnloop://team-a/{OLD}"', MODEL.uri).replace(OLD, NEW)
    assert file.read_text() == expected
    assert file.stat().st_mode & 0o777 == 0o640
    text = body.read_text()
    assert "| this model | 100 | 480.0 | 470.0 to 490.0 |" in text
    assert "| minReturn | passed | 470 \\| \\<b>@\u200ball\\</b> is above 195 |" in text
    assert f"- model: `{MODEL.uri}`" in text
    assert "already" in proposed(file, *jobs, body=str(body))
    assert file.read_text() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["body.md", "walker.yaml"]


@pytest.mark.parametrize("text", [MANIFEST, FLOW, UNIFORM])
def test_what_is_written_reads_as_that_model_and_all_else_as_before(text: str) -> None:
    after = [item for item in yaml.safe_load_all(with_model(text, "walker", MODEL))]
    before = [item for item in yaml.safe_load_all(text)]
    for new, old in zip(after, before, strict=True):
        spec = new.get("spec") or {}
        model = spec.pop("model", None) or (spec.get("deployment") or {}).pop("model", None)
        spec_before = old.get("spec") or {}
        had = spec_before.pop("model", None) or (spec_before.get("deployment") or {}).pop("model", None)
        assert model == (MODEL._asdict() if had else None)
        assert new == old


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=40))
def test_no_address_breaks_out_of_its_place(uri: str) -> None:
    for text in (MANIFEST, FLOW, UNIFORM):
        [found] = [
            item for item in yaml.safe_load_all(with_model(text, "walker", ModelInManifest(uri, NEW))) if "spec" in item
        ]
        model = found["spec"].get("model") or found["spec"]["deployment"]["model"]
        assert model == {"uri": uri, "sha256": NEW}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: LearningAgent\nmetadata: {name: walker}\nspec: {}\n", "spec.deployment.model.uri of 'walker'"),
        (f"{FLOW}---\n{FLOW}", "2 LearningAgents"),
        ("kind: ConfigMap\nmetadata: {name: walker}\n", "0 LearningAgents"),
        ("spec: {{ .Values.model }}: {", "invalid YAML"),
        (" " * (1 << 21), "characters"),
    ],
)
def test_a_file_that_cannot_be_changed_stays_as_it_is(tmp_path: Path, text: str, why: str) -> None:
    file, body = tmp_path / "walker.yaml", tmp_path / "body.md"
    file.write_text(text)
    with pytest.raises(CommandError, match=why):
        proposed(file, job("walker-7"), body=str(body))
    assert file.read_text() == text
    assert not body.exists()


def test_what_is_not_proven_is_not_proposed(tmp_path: Path) -> None:
    file = tmp_path / "walker.yaml"
    file.write_text(MANIFEST)
    with pytest.raises(CommandError, match="no validated run"):
        proposed(file, job("walker-8", "Failed"), job("other-9", agent="other"))
    assert file.read_text() == MANIFEST


@pytest.mark.parametrize("text", ["[x](https://evil.example)", "\\[x\\](https://evil.example)", "a|b\n| c", "\x1b[2J"])
def test_what_a_gate_says_is_no_link_no_cell_and_no_order_to_a_terminal(text: str) -> None:
    ended = job("walker-7")
    ended["status"]["gates"] = [{"name": "g", "passed": True, "message": text}]
    [line] = [row for row in proposal("walker", ended).splitlines() if row.startswith("| g ")]
    assert not re.search(r"(?<!\\)(\\\\)*\](?=\()", line), "an even number of backslashes escapes nothing"
    assert len(re.findall(r"(?<!\\)\|", line)) == 4
    assert "\x1b" not in line
