"""What the libraries hold, for the ask page: a line on each, and questions that it can answer.

    overviews = await Overviews(shelves).list_overviews(caller)

A question is made of a document's title, and offered only if the library answers it with a sentence of that document.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from epicrisis.core.errors import EpicrisisError
from epicrisis.core.printable import count_noun, printable
from epicrisis.core.references import name_document
from epicrisis.core.types import Question
from epicrisis.library.core.document_list import DocumentEntry, DocumentFilter, list_documents
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.users import Caller
from epicrisis.server.libraries.reading import offload
from epicrisis.server.libraries.resources import OpenLibrary, RequestSettings
from epicrisis.server.libraries.shelves import Shelves, find_store

OFFERED = 3
"""Questions of a library that the ask page offers."""
_TRIED = 12
_READ = 60
"""Titles that questions are made of, the first of the library."""
_MOST_CHARACTERS = 110
_EFFECT = re.compile(r"(?:the )?(?:effects?|impact|efficacy|influence) of (.{1,80}?) on (.{1,80})", re.IGNORECASE)
_VERSUS = re.compile(r"(.{1,80}?),? (?:versus|vs\.?|compared with) (.{1,80}?) (for|in) (.{1,80})", re.IGNORECASE)
_PREVENTION = re.compile(
    r"(.{1,80}?) (?:for|in)(?: the)? (prevention|treatment|management) of (.{1,80})", re.IGNORECASE
)

_SENTENCE = re.compile(
    r"\b(?:is|are|was|were|does|do|did|has|have|not|can|may|(?:reduc|improv|increas|decreas|prevent|predict|lower|affect|"
    r"caus|rais)(?:e?s|es))\b|[:?!]",
    re.IGNORECASE,
)
"""A title that is a sentence is nothing to ask about."""


@dataclass(frozen=True, slots=True)
class LibraryOverview:
    """A library on the ask page."""

    name: str
    summary: str
    """`166 documents, the newest of 2021`."""
    holds_patients: bool
    questions: tuple[str, ...] = ()


class Overviews:
    """Describes libraries. What it found is kept until a library changes."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self._known: dict[str, tuple[int, LibraryOverview]] = {}
        self._lock = asyncio.Lock()

    async def list_overviews(self, caller: Caller) -> list[LibraryOverview]:
        """Return the libraries that a caller may read. Those that cannot be listed are left out."""
        overviews: list[LibraryOverview] = []
        for library in self._shelves.resources.libraries.values():
            if library.holds_patients and not caller.has("patient-reader"):
                continue
            try:
                overviews.append(await self._describe(library))
            except EpicrisisError:
                continue
        return overviews

    async def _describe(self, library: OpenLibrary) -> LibraryOverview:
        pipeline = library.pipeline
        version = await offload(pipeline, lambda: find_store(library).open_table().version)
        known = self._known.get(library.name)
        if known is not None and known[0] == version:
            return known[1]
        async with self._lock:
            known = self._known.get(library.name)
            if known is None or known[0] != version:
                known = self._known[library.name] = version, await self._read(library)
        return known[1]

    async def _read(self, library: OpenLibrary) -> LibraryOverview:
        name = printable(library.name)
        search = library.pipeline.search
        if search is None:
            raise NotFound("the library cannot be listed")
        counts = await offload(library.pipeline, self._shelves.count, library)
        newest = f", the newest of {max(counts.years)}" if counts.years else ""
        documents = f"{count_noun(counts.documents, 'document')}{newest}"
        if library.holds_patients:
            patients = len(await offload(library.pipeline, search.rosters[0].patients))
            beside = f", and {documents}" if counts.documents else ""
            return LibraryOverview(name, f"the records of {count_noun(patients, 'patient')}{beside}", True)
        entries = await offload(library.pipeline, list_documents, find_store(library), DocumentFilter(), 0, _READ)
        return LibraryOverview(name, documents, False, await self._find_questions(library, entries.documents))

    async def _find_questions(self, library: OpenLibrary, entries: Iterable[DocumentEntry]) -> tuple[str, ...]:
        """Return questions that the library answers by a sentence of the document whose title they are made of."""
        if "evidence" not in library.strategies:
            return ()
        pipeline = library.with_settings(RequestSettings(strategy="evidence"))
        questions: list[str] = []
        for tried, (document_id, question) in enumerate(phrase_questions(entries)):
            if len(questions) == OFFERED or tried == _TRIED:
                break
            try:
                answer = await pipeline.answer(Question(question))
            except EpicrisisError:
                continue
            if answer.state == "answered" and document_id in {citation.document_id for citation in answer.citations}:
                questions.append(question)
        return tuple(questions)


def phrase_questions(entries: Iterable[DocumentEntry]) -> Iterator[tuple[str, str]]:
    """Yield document ids with a question made of their title, those of comparisons first."""
    plain: list[tuple[str, str]] = []
    for entry in entries:
        title = printable(entry.title).strip().rstrip(".")
        if name_document(title, "") != title or "retracted" in title.casefold():
            continue
        if question := phrase_question(title):
            yield entry.id, question
        elif len(title.split()) >= 4 and len(title) < _MOST_CHARACTERS - 24 and not _SENTENCE.search(title):
            plain.append((entry.id, f"What is known of {_lower(title)}?"))
    yield from plain


def phrase_question(title: str) -> str:
    """Return the question that a title answers, or an empty text. What follows a colon is left out."""
    if title.endswith("?"):
        return title if len(title) <= _MOST_CHARACTERS and ":" not in title else ""
    words = re.split(r"[:;] | [-–—] ", title)[0].strip()
    question = ""
    if match := _EFFECT.fullmatch(words):
        question = f"What is the effect of {_lower(match[1])} on {match[2]}?"
    elif (match := _VERSUS.fullmatch(words)) and (" " in match[1] or " " not in match[2]):
        # `Intensive versus conventional control` shares a word.
        question = f"How does {_lower(match[1])} compare with {match[2]} {match[3]} {match[4]}?"
    elif match := _PREVENTION.fullmatch(words):
        aim = "prevent" if match[2].lower() == "prevention" else "help to treat"
        question = f"Does {_lower(match[1])} {aim} {match[3]}?"
    return question if len(question) <= _MOST_CHARACTERS else ""


def _lower(text: str) -> str:
    """Return the text with its first letter in lower case, unless it begins an abbreviation."""
    return text if text[1:2].isupper() or text[1:2] == "-" else f"{text[:1].lower()}{text[1:]}"
