"""A hook of MkDocs: links from a page to files of the repository outside of the documentation.

The site has no address of a repository to link to, so such a link becomes the file's path in its text. A link to a
file that does not exist stays as it is, and MkDocs' strict mode refuses it.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#\s]+)(?P<anchor>#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its links out of docs/ replaced by the text and the path."""
    folder = (ROOT / "docs" / page.file.src_uri).parent

    def shown(match: re.Match[str]) -> str:
        path = (folder / match["target"]).resolve()
        outside = not path.is_relative_to(ROOT / "docs")
        if not outside or not path.exists() or not path.is_relative_to(ROOT):
            return match[0]
        name = str(path.relative_to(ROOT))
        text = match["text"]
        return text if text.strip("`") == name else f"{text} (`{name}`)"

    return _LINK.sub(shown, markdown)
