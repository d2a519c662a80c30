"""Answers, passages and sentences as Python shows them: HTML without script, Markdown, text, a table or a file.

`core.display` calls these functions by name. All texts are escaped.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.answering.citations import cite
from epicrisis.core.answers import Answer, Quotation, Retrieved
from epicrisis.core.errors import InputError, ModelMissing
from epicrisis.core.printable import count_noun, printable, shorten
from epicrisis.core.references import build_reference
from epicrisis.core.studies import StatedRatio, StudyCell, StudyRow
from epicrisis.core.types import Hit, Ranking, SentenceRanking
from epicrisis.report.answer_content import (
    AnswerContent,
    AnswerSection,
    SourceEntry,
    build_answer_content,
    describe_marks,
    list_sentences,
)
from epicrisis.report.answer_files import build_answer_environment, to_markdown, write_section
from epicrisis.report.answer_text import to_text
from epicrisis.report.saved_answers import check_answer_file, write_answer_file
from epicrisis.report.study_table import build_study_table
from epicrisis.system.local_only import local_path

if TYPE_CHECKING:
    import pandas

MAX_CHARACTERS = 300
"""The beginning of a passage that is shown."""


def draw_html(value: Answer | Ranking | SentenceRanking) -> str:
    """Return a fragment of HTML with its own style, which fits light and dark notebooks."""
    template = build_answer_environment().get_template("notebook.html.jinja")
    content: AnswerContent | None = None
    sections: tuple[AnswerSection, ...] = ()
    if isinstance(value, Answer):
        content = build_answer_content(value)
    else:
        sections = (_build_section(value),)
    # The ids of several answers on one page differ.
    prefix = f"epicrisis-{hashlib.sha256(repr((content, sections)).encode('utf-8', 'replace')).hexdigest()[:8]}-"
    return template.render(content=content, sections=sections, prefix=prefix, path=())


def draw_markdown(value: Answer | Ranking | SentenceRanking) -> str:
    """Return Markdown in which no text adds markup."""
    if isinstance(value, Answer):
        return to_markdown(build_answer_content(value))
    return "\n".join(write_section(_build_section(value)))


def _build_section(value: Ranking | SentenceRanking) -> AnswerSection:
    if isinstance(value, Ranking):
        heading = f"{count_noun(len(value.hits), 'passage')}, best first"
        entries = tuple(map(_describe_hit, value.hits))
    else:
        heading = f"{count_noun(len(value.hits), 'sentence')}, best first"
        entries = _describe_sentences(value)
    return AnswerSection(heading, entries, tuple(map(printable, value.notes)))


def _describe_hit(hit: Hit) -> SourceEntry:
    passage = hit.passage
    reference = build_reference(passage)
    text = printable(reference.describe(passage.title, passage.source, passage.date)) or printable(passage.document_id)
    place = ", ".join(filter(None, (passage.id, reference.describe_place())))
    details = [f"“{shorten(passage.text, MAX_CHARACTERS)}”", printable(place)]
    if reference.study is not None:
        details.insert(0, f"Study type: {reference.study.label}")
    return SourceEntry(f"{hit.rank + 1}.", text, describe_marks(passage.marks), tuple(details), reference.links)


def _describe_sentences(ranking: SentenceRanking) -> tuple[SourceEntry, ...]:
    quotations: list[Quotation] = []
    for sentence in ranking.sentences:
        quotations.append(Quotation(sentence.passage.id, sentence.text, sentence.start, sentence.end))
    _, citations = cite("", quotations, [sentence.passage for sentence in ranking.sentences])
    return list_sentences(citations)


def draw_text(answer: Answer) -> str:
    """Return the answer with its sources, as `epicrisis ask` prints it."""
    return to_text(answer)


def list_studies(answer: Answer) -> tuple[StudyRow, ...]:
    """Return one row for each cited study."""
    return build_study_table(answer, [hit.passage for ranking in _list_rankings(answer) for hit in ranking])


def _list_rankings(answer: Answer) -> list[Ranking]:
    return [event.ranking for event in answer.trace if isinstance(event, Retrieved)]


def tabulate_studies(answer: Answer) -> pandas.DataFrame:
    """Return the studies as a table. Raises ModelMissing without pandas."""
    try:
        import pandas
    except ImportError as error:
        raise ModelMissing('a DataFrame needs pandas: pip install "epicrisis[dataframe]"') from error
    columns = [field.name for field in fields(StudyRow)]
    rows = [[_as_cell(getattr(row, name)) for name in columns] for row in list_studies(answer)]
    return pandas.DataFrame(rows, columns=columns)


def _as_cell(value: Any) -> Any:
    """Return the words of a cell or ratio in place of the object."""
    return value.text if isinstance(value, StudyCell | StatedRatio) else value


def save(answer: Answer, path: Path | str) -> None:
    """Write the answer to a file, as `Answer.save` says."""
    file = local_path(path)
    if check_answer_file(file):
        raise InputError(
            f"{file}: name the file .docx, .md, .html or .json for the answer, .bib or .ris for its sources"
        )
    write_answer_file(file, answer)
