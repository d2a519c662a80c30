"""Write one answer as Markdown or as an HTML page, with the content of the screen.

The page is one file without script, works offline and on paper, and escapes all texts.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from epicrisis.printable import printable
from epicrisis.report.answer_content import AnswerContent, AnswerSection, SourceEntry
from epicrisis.report.templates import build_environment

if TYPE_CHECKING:
    from jinja2 import Template

MARKDOWN_MARK = "<!-- epicrisis ask -->"
HTML_MARK = '<meta name="generator" content="epicrisis ask">'
"""Every file has its mark. A text cannot: markup in it is escaped."""
_MARKUP = re.compile(r"[\\`*_\[\]<>#|~&!$@]|:(?=//)|(?<=\bwww)\.")
_LIST_ITEM = re.compile(r"^(\d*)([-+=:.)])")
_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { font-size: 1.15rem; }
.warning, .mark { border: 2px solid; padding: 0 .3rem; }
.entries { list-style: none; padding: 0; } .entries > li { margin-bottom: 1rem; }
.label { font-weight: bold; }
li, p { overflow-wrap: anywhere; }
"""


def to_markdown(content: AnswerContent, path: Sequence[str] = ()) -> str:
    """Return the answer as Markdown, with the steps of `path` at its end. No text can add markup."""
    lines = [f"# {escape_markdown(content.question)}", ""]
    verdict = "\\\n".join(map(escape_markdown, content.verdict))
    lines += [f"**{content.head}:** {verdict}", ""]
    lines += _list_lines(content.claims)
    for warning in content.warnings:
        lines += [f"**Warning:** {escape_markdown(warning)}", ""]
    for remark in content.remarks:
        lines += [escape_markdown(remark), ""]
    for section in content.sections:
        lines += _write_section(section)
    if path:
        lines += ["## How the answer was found", "", *_list_lines(path)]
    return "\n".join([*lines, MARKDOWN_MARK, ""])


def _list_lines(texts: Sequence[str]) -> list[str]:
    lines = [f"* {escape_markdown(text)}" for text in texts]
    return [*lines, ""] if lines else []


def _write_section(section: AnswerSection) -> list[str]:
    lines = [f"## {section.heading}", ""]
    for entry in section.entries:
        lines += _write_entry(entry)
    return [*lines, *_list_lines(section.lines)] if section.lines else [*lines, ""]


def _write_entry(entry: SourceEntry) -> list[str]:
    warning = f" **{escape_markdown(entry.warning)}**" if entry.warning else ""
    lines = [f"* {escape_markdown(entry.label)}{warning} {escape_markdown(entry.text)}"]
    lines += [f"  * {escape_markdown(detail)}" for detail in entry.details]
    links: list[str] = []
    for link in entry.links:
        links.append(f"[{link.label} {escape_markdown(link.identifier)}](<{link.url}>)")
    if links:
        lines.append(f"  * {', '.join(links)}")
    return lines


def escape_markdown(text: str) -> str:
    """Return one printable line in which Markdown finds no markup, also at the beginning of a line.

    Addresses in a text do not become links.
    """
    escaped = _MARKUP.sub(lambda match: f"\\{match[0]}", printable(text).strip())
    return _LIST_ITEM.sub(r"\1\\\2", escaped)


def to_html(content: AnswerContent, path: Sequence[str] = ()) -> str:
    """Return the answer as a complete page, with the steps of `path` at its end."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    from markupsafe import Markup

    return _template().render(content=content, path=path, style=Markup(_STYLE), style_hash=digest)


@cache
def _template() -> Template:
    text = resources.files("epicrisis.report").joinpath("answer.html.jinja").read_text(encoding="utf-8")
    return build_environment().from_string(text)
