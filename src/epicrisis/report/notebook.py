"""Draw answers, passages and sentences for a notebook: HTML without script, or Markdown. All texts are escaped.

`notebook_display` calls `draw_html` and `draw_markdown` by name.
"""

from __future__ import annotations

import hashlib

from epicrisis.answering.citations import cite
from epicrisis.core.answers import Answer, Quotation
from epicrisis.core.printable import count_noun, printable, shorten
from epicrisis.core.references import build_reference
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
