"""Foreign text cannot act: not on a terminal, not in markdown, and not as a line of ours."""

import json
import re

import pytest

from learnloop_common.untrusted_text import one_line, shown
from learnloop_operator.cli import cluster, explaining_verbs, main as command
from learnloop_operator.cli.objects import CommandError, table

EVIL = "fine\x1b]0;owned\x07\x1b[2J\r\nmdep/other Healthy \u202ella \x9b31m"
OBEYED = "\x1b\x07\r\u202e\x9b"


@pytest.mark.parametrize("fails", [False, True])
def test_no_command_prints_what_a_terminal_obeys(monkeypatch, capsys, fails):
    def output(cluster, name: str) -> str:
        if fails:
            raise CommandError(EVIL)
        return EVIL

    monkeypatch.setattr(cluster, "KubernetesCluster", lambda *_: None)
    monkeypatch.setattr(explaining_verbs, "why", output)
    assert command.main(["why", "la"]) == int(fails)
    printed = capsys.readouterr()
    assert not set(OBEYED) & set(printed.out + printed.err)
    assert "\\u001b]0;owned\\u0007" in printed.out + printed.err, "it is shown, not hidden"


@pytest.mark.parametrize("text", ["x ##vso[task.setvariable variable=PATH]evil", "a ##[error]b", "##teamcity[x]"])
def test_a_pipelines_log_takes_no_order_from_what_a_run_said(text: str) -> None:
    assert not re.search(r"##\w*\[", shown(text))
    assert json.loads(f'"{shown(text)}"') == text
    for line in ("::add-mask::secret", "fine\n  ::stop-commands::x", "fine\r::error::x"):
        assert not re.search(r"^\s*::", shown(line), re.MULTILINE)
    assert shown("std::vector :: ## [a] #1 a:b") == "std::vector :: ## [a] #1 a:b"


def test_no_text_forges_a_row_of_a_table() -> None:
    text = table(("NAME", "WHY"), [("la", one_line(EVIL))])
    assert len(text.splitlines()) == 2
    assert not set(OBEYED) & set(text)


def test_json_means_the_same_after_it_was_made_safe_to_show() -> None:
    written = json.dumps({"why": EVIL, "fine": "é 漢 🙂\ttab"}, ensure_ascii=False)
    assert json.loads(shown(written)) == json.loads(written)
    assert shown("é 漢 🙂\ttab\nline") == "é 漢 🙂\ttab\nline"


def test_a_half_of_a_pair_is_shown_instead_of_failing_to_be_printed() -> None:
    assert one_line("a\ud800\u2028b").encode() == b"a\\ud800 b"
