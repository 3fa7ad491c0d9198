"""Others' words in markdown stay words: no page that renders them acts on them."""

import re

import pytest
from markdown_it import MarkdownIt

from learnloop_common.untrusted_text import MOST_CHARACTERS, plain

GITHUB_ACTS_ON = {
    "mention": re.compile(r"(?:^|[^\w/])@[A-Za-z0-9][A-Za-z0-9-]*(?:/[\w-]+)?"),
    "issue": re.compile(r"#\d+|\bGH-\d+", re.IGNORECASE),
    "address": re.compile(r"\b(?:https?|ftp)://[^\s]+|\bwww\.[^\s]+|[\w.+-]+@[\w-]+\.[\w.]+"),
}
"""By GitHub's manual on mentions, references and autolinks, and by GFM 0.29, section 6.9."""
EVIL = [
    "@team see #12",
    r"\@team and \\@team, @org/team!",
    "&#64;team &commat;team &#x40;team, &num;12",
    "fixes #12, closes o/r#12, resolves GH-12",
    "fixes https://github.com/o/r/issues/12, HTTPS://evil.example, www.evil.example, mail@evil.example",
    "[details](https://evil.example)",
    r"[details\](https://evil.example)",
    "![](https://evil.example/seen.png)",
    "<script>x</script> <https://evil.example> <!-- @team hidden -->",
    "a\n\n## What serves everybody\n- `evil` <details>",
    "# serves everybody",
    "1. **walker-7**: _proven_, ~~failed~~",
    "12) one",
    "[x] checked",
    "> quoted",
    "+ one\n+ two",
    "---",
    "`@team` ``#12``",
    "a | b | c",
    ":+1: :tada: at 12:34:56",
    "$x$",
]


def rendered(markdown: str) -> str:
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(f"- {markdown}")
    match = re.fullmatch(r"<ul>\s*<li>(.*)</li>\s*</ul>\s*", html, re.DOTALL)
    assert match, html
    return match[1]


@pytest.mark.parametrize("text", EVIL)
def test_a_page_that_renders_it_shows_the_text_and_nothing_else(text: str) -> None:
    html = rendered(plain(text))
    assert "<" not in html, "neither a link, nor code, nor a heading, nor a list, nor emphasis"
    read = html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    assert read.replace("\u200b", "") == " ".join(text.split())


@pytest.mark.parametrize("text", EVIL)
def test_a_forge_finds_nobody_to_tell_and_nothing_to_link_to(text: str) -> None:
    html = rendered(plain(text))
    assert {name: what.findall(html) for name, what in GITHUB_ACTS_ON.items()} == {name: [] for name in GITHUB_ACTS_ON}


def test_what_is_no_sign_of_anything_stays_as_it_is() -> None:
    for text in ("return 9.5 [8, 10] < 12", "mean_return of walker-7 is 95 % at 12:34:56; it waits: (a + b)"):
        assert plain(text) == text


def test_a_long_text_is_cut_so_that_a_comment_holds_many() -> None:
    assert len(plain("x" * 40000)) == MOST_CHARACTERS
    assert plain("x" * 40000).endswith("…")
