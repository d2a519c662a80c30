"""Hooks of MkDocs: reference pages made from the code, and links to files of the repository outside `docs/`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

# MkDocs loads this file by its path, so that its folder is not on the path of modules.
sys.path.insert(0, str(Path(__file__).parent))
from reference import make_pages

# `jupyter_nbconvert_config.json` joins the pieces in which a command of a notebook prints, or lines are torn apart.
os.environ["JUPYTER_CONFIG_DIR"] = str(Path(__file__).parent)
ROOT = Path(__file__).parents[2]
COPIES = {
    "benchmarks/RESULTS.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages of the site that lie elsewhere in the repository."""
LINK = re.compile(r"(\[[^\]]*\])\(([^)#:\s]+)(#[^)\s]*)?\)")
NOTEBOOK_LINK = re.compile(r'href="([^":#]+\.(?:md|ipynb))(?=[#"])')


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are no files below `docs/`."""
    for path, text in make_pages().items():
        files.append(File.generated(config, path, content=text))
    for source, path in COPIES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, path, content=_move_links(text, PurePosixPath(source), path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with links that lead out of `docs/` turned to the site's copy, or into plain text."""
    path = page.file.src_uri
    if path in COPIES.values():
        return markdown
    return _move_links(markdown, PurePosixPath("docs") / path, path)


def on_page_content(html: str, page: Any, files: Files, **_: Any) -> str:
    """Return the page with links between sources turned to pages where MkDocs does not: in notebooks."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html

    def turn(match: re.Match[str]) -> str:
        target = files.get_file_from_path(_resolve(PurePosixPath(page.file.src_uri).parent / match[1]))
        return match[0] if target is None else f'href="{target.url_relative_to(page.file)}'

    return NOTEBOOK_LINK.sub(turn, html)


def _move_links(text: str, source: PurePosixPath, path: str) -> str:
    """Return the Markdown of the repository's file `source` with links that hold in the site's page `path`."""

    def move(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        inside = _resolve(source.parent / target)
        if inside.startswith("docs/"):
            place = inside.removeprefix("docs/")
        elif inside in COPIES:
            place = COPIES[inside]
        else:
            return f"{label[1:-1]} (`{inside}` in the repository)"
        return f"{label}({'../' * path.count('/')}{place}{anchor})"

    return LINK.sub(move, text)


def _resolve(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
