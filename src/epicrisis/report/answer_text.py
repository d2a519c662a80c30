"""The content of an answer as lines of plain text, on a terminal and in Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rich.cells import cell_len

from epicrisis.core.answers import Answer, Citation
from epicrisis.core.printable import GUTTER, printable, shorten
from epicrisis.report.answer_content import EVIDENCE, AnswerContent, AnswerSection, build_answer_content
from epicrisis.report.computed_table import ValueTable
from epicrisis.report.study_table import list_studies

MAX_TITLE = 160
"""Characters of a title that a screen shows: two lines."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of an answer. `style` is that of its first `styled` characters, of all for None."""

    text: str
    style: str = ""
    styled: int | None = None


def build_screen_content(
    answer: Answer, references: AnswerSection | None = None, *, verbose: bool = False
) -> AnswerContent:
    """Return what a screen shows of an answer: unless `verbose`, a sentence of each study, and no very long title."""
    if not verbose:
        answer = _shorten_titles(answer)
    sources = list_studies(answer) if answer.strategy == EVIDENCE and not verbose else None
    return build_answer_content(answer, references, sources=sources, with_places=verbose)


def _shorten_titles(answer: Answer) -> Answer:
    """Return the answer with at most `MAX_TITLE` characters of each title of a source."""

    def shorten_title(citation: Citation) -> Citation:
        return replace(citation, title=shorten(citation.title, MAX_TITLE))

    citations, nearest = map(shorten_title, answer.citations), map(shorten_title, answer.nearest)
    return replace(answer, citations=tuple(citations), nearest=tuple(nearest))


def lay_out(content: AnswerContent, *, quiet: bool = False) -> Iterator[TextLine]:
    """Yield the lines of an answer: verdict and claims, and unless `quiet` the sources, disagreements and gaps."""
    first, *rest = content.verdict
    if content.failed:
        # A command ends with the reason on standard error.
        yield TextLine(content.head, "bold")
    else:
        yield TextLine(f"{content.head}: {first}", "bold", len(content.head))
        yield from (TextLine(f"{GUTTER}{line}") for line in rest)
    yield from (TextLine(f"  * {claim}") for claim in content.claims)
    yield from (TextLine(f"  {line}", "yellow") for line in content.warnings)
    if quiet:
        return
    yield from (TextLine(f"  {line}") for line in content.remarks)
    for section in content.sections:
        yield TextLine("")
        yield from _lay_out_section(section)


def _lay_out_section(section: AnswerSection) -> Iterator[TextLine]:
    yield TextLine(section.heading, "bold")
    if section.lead:
        yield TextLine(f"  {section.lead}")
    if section.table is not None:
        yield from _lay_out_table(section.table)
    for entry in section.entries:
        mark = f" [{entry.warning}]" if entry.warning else ""
        yield TextLine(f"  {entry.label}{mark} {entry.text}")
        yield from (TextLine(f"      {detail}") for detail in entry.details)
        yield from (TextLine(f"      {link.label} {link.identifier}: {link.url}") for link in entry.links)
    yield from (TextLine(f"  * {line}") for line in section.lines)


def _lay_out_table(table: ValueTable) -> Iterator[TextLine]:
    """Yield a table with aligned columns, and the line of its values. The last column is as long as it is."""
    rows = (table.columns, *table.rows)
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell + " " * (width - cell_len(cell)) for width, cell in zip(widths, row, strict=True)]
        yield TextLine(f"  {'  '.join(cells).rstrip()}")
    if table.sparkline:
        yield TextLine(f"  {table.sparkline}")


def to_text(answer: Answer) -> str:
    """Return the answer with its sources as printable lines."""
    content = build_screen_content(answer)
    lines = [printable(line.text) for line in lay_out(content)]
    if content.failed:
        lines[0] = f"{lines[0]}: {' '.join(content.verdict)}"
    return "\n".join(lines)
