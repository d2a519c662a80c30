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

from epicrisis.core.printable import printable
from epicrisis.report.answer_content import SUPPORT_NOTICE, AnswerContent, AnswerSection, SourceEntry
from epicrisis.report.computed_table import ValueTable
from epicrisis.report.templates import build_environment

if TYPE_CHECKING:
    from jinja2 import Environment, Template

MARKDOWN_MARK = "<!-- epicrisis ask -->"
HTML_MARK = '<meta name="generator" content="epicrisis ask">'
"""Every file has its mark. A text cannot: markup in it is escaped."""
_MARKUP = re.compile(r"[\\`*_\[\]<>#|~&!$@]|:(?=//)|(?<=\bwww)\.")
_LIST_ITEM = re.compile(r"^(\d*)([-+=:.)])")
_STYLE = """
:root {
  color-scheme: light dark; --paper: #fff; --ink: #1b1b1b; --soft: #55595e; --line: #d0d0d0; --tint: #f4f5f6;
  --link: #0057a8; --alert: #b34700;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #15181c; --ink: #e9e7e4; --soft: #a9aeb4; --line: #3d434a; --tint: #1e2227; --link: #86c5ff;
    --alert: #ff9b63;
  }
}
* { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
html { -webkit-text-size-adjust: 100%; }
body { max-width: 46rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; overflow-wrap: anywhere; }
h1, h2 { line-height: 1.25; text-wrap: balance; }
h1 { font-size: 1.3rem; margin: 0 0 1rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
a { color: var(--link); }
p { margin: .5rem 0; }
.answer { background: var(--tint); border-left: 5px solid var(--link); padding: .75rem 1rem; }
.answer.none { border-left: 5px double var(--alert); }
.answer h2 { border: 0; margin: 0; padding: 0; font-size: .9rem; color: var(--soft); }
.verdict { font-size: 1.25rem; line-height: 1.35; font-weight: 600; margin: .1rem 0 .5rem; }
.claims { padding-left: 1.1rem; margin: .5rem 0; } .claims li { margin-bottom: .4rem; }
.remark { color: var(--soft); font-size: .9rem; }
.warning { border: 2px solid var(--alert); padding: .3rem .6rem; }
.mark { border: 2px solid var(--alert); padding: 0 .3rem; }
.entries { list-style: none; padding: 0; margin: 0; } .entries > li { margin-bottom: 1.25rem; }
.entries ul { list-style: none; padding: 0 0 0 .75rem; margin: .3rem 0 0; border-left: 2px solid var(--line); }
.entries ul li { margin-bottom: .2rem; }
.label { font-weight: 600; }
.detail, .lines { font-size: .9rem; } .detail { color: var(--soft); }
.lines { padding-left: 1.1rem; margin: 0; } .lines li { margin-bottom: .3rem; }
summary h2 { display: inline; border: 0; } summary { cursor: pointer; margin-top: 2rem; }
.path { list-style: none; padding: 0; font: .8rem/1.45 ui-monospace, monospace; } .path li { white-space: pre-wrap; }
footer { margin-top: 2.5rem; padding-top: .75rem; border-top: 1px solid var(--line); font-size: .85rem; }
footer { color: var(--soft); }
.values { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .5rem 0; }
.values th, .values td { text-align: left; vertical-align: top; padding: .2rem .5rem .2rem 0; }
.values th, .values td { border-bottom: 1px solid var(--line); }
.course { width: 20rem; max-width: 100%; height: auto; }
@media print { .answer { border: 1px solid; } .entries > li { break-inside: avoid; } }
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
        lines += write_section(section)
    if path:
        lines += ["## How the answer was found", "", *_list_lines(path)]
    return "\n".join([*lines, MARKDOWN_MARK, ""])


def _list_lines(texts: Sequence[str]) -> list[str]:
    lines = [f"* {escape_markdown(text)}" for text in texts]
    return [*lines, ""] if lines else []


def write_section(section: AnswerSection) -> list[str]:
    """Return a section as lines of Markdown."""
    lines = [f"## {section.heading}", ""]
    if section.lead:
        lines += [escape_markdown(section.lead), ""]
    if section.table is not None:
        lines += _write_table(section.table)
    for entry in section.entries:
        lines += _write_entry(entry)
    return [*lines, *_list_lines(section.lines)] if section.lines else [*lines, ""]


def _write_table(table: ValueTable) -> list[str]:
    """Return a table as lines of Markdown, with the line of its values below."""
    lines = [_write_row(table.columns), _write_row(["---"] * len(table.columns), is_markup=True)]
    lines += map(_write_row, table.rows)
    return [*lines, "", *([table.sparkline, ""] if table.sparkline else [])]


def _write_row(cells: Sequence[str], *, is_markup: bool = False) -> str:
    return f"| {' | '.join(cells if is_markup else map(escape_markdown, cells))} |"


def _write_entry(entry: SourceEntry) -> list[str]:
    warning = f" **{escape_markdown(entry.warning)}**" if entry.warning else ""
    lines = [f"* {escape_markdown(entry.label)}{warning} {escape_markdown(entry.text)}"]
    lines += [f"  * {escape_markdown(detail)}" for detail in entry.details]
    links = [f"[{link.label} {escape_markdown(link.identifier)}](<{link.url}>)" for link in entry.links]
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

    return _template().render(
        content=content, notice=SUPPORT_NOTICE, path=path, prefix="", style=Markup(_STYLE), style_hash=digest
    )


@cache
def _template() -> Template:
    return build_answer_environment().get_template("answer.html.jinja")


def build_answer_environment() -> Environment:
    """Return the environment of the templates of this folder."""
    from jinja2 import FunctionLoader

    folder = resources.files("epicrisis.report")
    return build_environment(FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8")))
