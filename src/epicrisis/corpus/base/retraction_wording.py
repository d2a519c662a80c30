"""Tell retracted articles and retraction notices by their titles, types, notes and banners.

    find_retraction("RETRACTED: Drug X in septic shock")  # {"retracted": True}
    find_retraction("Retraction of the tongue in infants")  # {}

Only wording that publishers and databases use for this counts: what may be about something else stays unmarked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from epicrisis.core.types import Document

_WORK = r"(?:article|paper|chapter|publication|manuscript|preprint|review|report|study)"
_TITLE_PREFIX = re.compile(
    rf"\W{{0,5}}?(?:this {_WORK} (?:has been|was) (?:retracted|withdrawn)\s{{0,3}}[:.–—]"
    rf"|[\[(<]\s{{0,3}}(?:retracted|withdrawn)(?:\s{{1,3}}{_WORK})?\s{{0,3}}[\])>]\W{{0,5}}"
    rf"|(?:retracted|withdrawn)(?:\s{{1,3}}{_WORK})?(?:\s{{0,3}}[:–—\]]|\s{{1,3}}-\s)"
    rf"|retracted\s{{1,3}}{_WORK}\s{{0,3}}\.)\s{{0,9}}",
    re.IGNORECASE,
)
_CAPITAL_PREFIX = re.compile(
    r"\W{0,5}(?:RETRACTED(?: ARTICLE| PAPER)?\s(?=.{0,300}[a-z]{3})|(?:TEMPORARY REMOVAL|REMOVED)\s{0,3}:\s{0,9})"
)
"""Elsevier puts the last two before articles that it took away."""
_TITLE_END = re.compile(
    rf"[\[(]\s{{0,3}}(?:this {_WORK} (?:has been|was) )?(?:(?:retracted|withdrawn)\s{{1,3}}{_WORK}\b[^()\[\]]{{0,200}}"
    r"|retracted(?:\s{0,3}[:.;,][^()\[\]]{0,200}|\s{1,3}(?:in|by|on|see)\b[^()\[\]]{0,200})?"
    r"|retraction in:[^()\[\]]{0,200})\s{0,3}[\])]\W{0,5}$",
    re.IGNORECASE,
)
_CAPITAL_END = re.compile(
    r"(?:(?:[-–—:.]\s{0,3}|(?<=[a-z0-9)])\s{1,3})RETRACTED(?: ARTICLE| PAPER)?|\(WITHDRAWN\)|\[WITHDRAWN\])\W{0,5}$"
)
_NOTICE_TITLE = re.compile(
    r"\W{0,5}(?:(?:statement|notice|letter) of (?:retraction|withdrawal)\b|(?:retraction|withdrawal) (?:notice|note|"
    rf"statement)\b|(?:editorial|author|partial) retraction\b|retraction of {_WORK}\b"
    r"|retraction(?: and (?:republication|replacement))?(?:\s{0,3}[:–—]|\.)"
    r"|retraction (?:to|of|for)\s{0,3}[:\"“”„‘'«]|retraction (?:to|of|for) .{1,300}\bet al\b)"
    r"(?:\s{0,3}(?:to|of|for|:|[–—]))?[\s:\"“”„‘'«]{0,9}",
    re.IGNORECASE,
)
_QUOTED_TITLE = re.compile(r"[\"“„«]([^\"“”„«»]{9,600})[\"”“»]\s{0,3}(?:[\[(][^\[\]]{0,200}[\])])?\W{0,5}$")
"""Elsevier: `Retraction notice to "Title" [J Demo 3 (2014) 4]`."""
_NOTICE_END = re.compile(
    r"[\[(]\s{0,3}retraction(?: notice| note|(?: notice)? (?:of|to) vol\b[^()\[\]]{0,200})?\s{0,3}[\])]\W{0,5}$",
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    rf"^\W{{0,5}}(?:this|the)\s(?:above |following )?{_WORK}\b(?<!study)(?<!report)(?<!review)"
    r"(?:[^.\n]{0,400}\bhas been|\s(?:has been|was|is|is being|is hereby))\s(?:formally )?(?:retracted|withdrawn)\b"
    r"|^\W{0,5}this (?:cochrane )?review (?:has been|was) withdrawn\b",
    re.IGNORECASE | re.MULTILINE,
)
_NOTE = re.compile(
    rf"^\W{{0,5}}(?:status\s{{0,3}}[:=]\s{{0,3}})?(?:{_WORK}\s)?retracted(?:\W{{0,5}}$|\s{{0,3}}[.;,(]"
    rf"|\s{{1,3}}(?:{_WORK}|on|by|in)\b)|\bretracted\s{{0,3}}[:=]\s{{0,3}}(?:yes|true|1)\b"
    rf"|\bthis {_WORK} (?:has been|was|is) (?:retracted|withdrawn)\b"
    r"|\bis marked: (?:[\w-]{1,30}, ){0,3}retracted\b",
    re.IGNORECASE | re.MULTILINE,
)
_PUBMED_NOTE = re.compile(r"\bRetracted Publication\b|\bRetraction [Ii]n(?::|\s.{0,200}(?:PMID|doi|\b(?:19|20)\d\d\b))")
_PUBMED_NOTICE = re.compile(
    r"\bRetraction of Publication\b(?! as Topic)|\bRetraction [Oo]f:|\bis marked: retraction-notice\b"
)
_CONCERN = re.compile(
    r"^\W{0,5}expression of concern(?: in| to| for)?\s{0,3}:|\bis marked: .{0,40}expression-of-concern\b",
    re.IGNORECASE | re.MULTILINE,
)
_RETRACTED_TYPES = frozenset(("retracted publication", "retracted article", "retracted paper", "retracted"))
_NOTICE_TYPES = frozenset(
    (
        *("retraction of publication", "retraction", "retraction notice", "retraction note", "partial retraction"),
        *("withdrawal notice", "partial-retraction"),
    )
)
_BANNER = re.compile(r"^\W{0,9}RETRACTED(?: ARTICLE| PAPER| PUBLICATION)?\W{0,9}$", re.MULTILINE)
_SPREAD_BANNER = re.compile(r"(?<![^\W_])R\s{1,4}E\s{1,4}T\s{1,4}R\s{1,4}A\s{1,4}C\s{1,4}T\s{1,4}E\s{1,4}D(?![^\W_])")
_BANNER_AFTER_LINE = re.compile(r"[a-z0-9.,;:)%]\s{1,3}RETRACTED(?: ARTICLE| PAPER)?\s{0,9}$", re.MULTILINE)
"""A watermark that a PDF draws after a line of its text."""
_BANNER_BEFORE_LINE = re.compile(r"^RETRACTED(?: ARTICLE| PAPER)?\s{1,3}(?=[A-Z(]?[a-z])", re.MULTILINE)
_WITHDRAWN_BANNER = re.compile(r"^\W{0,9}WITHDRAWN(?: ARTICLE| PAPER)?\W{0,9}$", re.MULTILINE)
_FIRST_LINES = 12
"""Lines of the first page that may hold the title."""
_FIRST_CHARACTERS = 4_000


def find_retraction(title: str, text: str = "", types: Iterable[str] = (), notes: Iterable[str] = ()) -> dict[str, Any]:
    """Return the metadata that mark an article: `retracted`, `retraction_notice`, or `corrections` with a concern.

    `types` are its publication types, `notes` what a reference manager holds beside it.
    """
    kinds = {part.strip().casefold() for type in types for part in re.split(r"[;,|]", type)}
    note = "\n".join(notes)
    marks: dict[str, Any] = {}
    if _is_notice_title(title) or not kinds.isdisjoint(_NOTICE_TYPES) or _PUBMED_NOTICE.search(note):
        marks["retraction_notice"] = True
    elif (
        _is_retracted_title(title)
        or not kinds.isdisjoint(_RETRACTED_TYPES)
        or _STATEMENT.search(text[:_FIRST_CHARACTERS])
        or _NOTE.search(note)
        or _PUBMED_NOTE.search(note)
    ):
        marks["retracted"] = True
    if _CONCERN.match(title) or _CONCERN.search(note):
        marks["corrections"] = [{"type": "ExpressionOfConcernIn"}]
    return marks


def find_banner(pages: Sequence[str]) -> dict[str, Any]:
    """Return the metadata that mark an article by the watermarks and first lines of its pages."""
    if not pages:
        return {}
    lines = [line for line in pages[0].splitlines() if line.strip()][:_FIRST_LINES]
    if any(map(_is_notice_title, lines)):
        return {"retraction_notice": True}
    outer_lines = "\n".join((*lines[:3], *pages[0].splitlines()[-3:]))
    is_retracted = (
        _BANNER.search(pages[0])
        or _SPREAD_BANNER.search(pages[0])
        or _BANNER_AFTER_LINE.search(pages[0])
        or _WITHDRAWN_BANNER.search(outer_lines)
        or _STATEMENT.search(pages[0])
        or any(_TITLE_PREFIX.match(line) for line in lines)
    )
    for pattern in (_BANNER, _SPREAD_BANNER, _BANNER_AFTER_LINE, _BANNER_BEFORE_LINE, _WITHDRAWN_BANNER):
        count = sum(pattern.search(page) is not None for page in pages)
        is_retracted = is_retracted or (count > 1 and 2 * count >= len(pages))
    return {"retracted": True} if is_retracted else {}


def mark_document(document: Document) -> Document:
    """Return a document of literature with the marks that its title and its first lines state."""
    if document.patient is not None:
        return document
    marks = {**find_banner([document.text[:_FIRST_CHARACTERS]]), **find_retraction(document.title)}
    return replace(document, metadata=merge_marks(document.metadata, marks)) if marks else document


def strip_retraction(title: str) -> str:
    """Return a title without the words that mark an article, or a notice about it, as retracted."""
    for pattern in (_TITLE_PREFIX, _CAPITAL_PREFIX, _NOTICE_TITLE):
        if match := pattern.match(title):
            title = title[match.end() :]
    for pattern in (_TITLE_END, _CAPITAL_END, _NOTICE_END):
        if match := pattern.search(title):
            title = title[: match.start()]
    return title.strip()


def find_named_title(notice: str) -> str:
    """Return the title of the article that a notice names in its own title, or an empty string."""
    if _NOTICE_TITLE.match(notice) is None:
        return ""
    quoted = _QUOTED_TITLE.search(notice)
    return quoted[1] if quoted else strip_retraction(notice)


def find_doubted_title(notice: str) -> str:
    """Return the title of the article that an expression of concern names in its own title, or an empty string."""
    match = _CONCERN.match(notice)
    if match is None:
        return ""
    quoted = _QUOTED_TITLE.search(notice)
    return quoted[1] if quoted else notice[match.end() :].strip()


def merge_marks(metadata: Mapping[str, Any], marks: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with marks, which take none of its own away."""
    corrections = list(metadata.get("corrections", ()))
    corrections += [correction for correction in marks.get("corrections", ()) if correction not in corrections]
    return {**metadata, **marks, **({"corrections": corrections} if corrections else {})}


def _is_retracted_title(title: str) -> bool:
    return any(
        (
            _TITLE_PREFIX.match(title),
            _CAPITAL_PREFIX.match(title),
            _TITLE_END.search(title),
            _CAPITAL_END.search(title),
        )
    )


def _is_notice_title(title: str) -> bool:
    return _NOTICE_TITLE.match(title) is not None or _NOTICE_END.search(title) is not None
