"""Find documents that are one study: one article exported from several databases, a PDF file and its abstract.

    articles = CitedArticle("pubmed:1", title, reference), CitedArticle("doi:10.1000/x", title, reference)
    studies = group_studies(articles)
    studies.find("doi:10.1000/x")  # "pubmed:1"

Two documents are one study if they share a DOI, PMID or PMCID, or title, year and first author. Where one of these is
unknown or differs a little, `find` still joins them and `find_sure` does not, so that the reader can be told.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from epicrisis.core.references import Reference

MIN_TITLE_LETTERS = 30
"""Letters that a title must have to identify an article of unknown year or author."""
MIN_SHORT_TITLE_LETTERS = 15
"""Letters that a title must have beside the same year and first author. `Reply` and `Editorial` are no titles."""
MAX_YEARS = 1
"""Years between two dates of one article: online and in print."""
_MIN_SHARED_WORDS = 0.5

_Likeness: TypeAlias = Literal["same", "unsure", "different"]

_TAG = re.compile(r"<[^<>]{0,100}>")
_WORD = re.compile(r"[^\W_]+")
_GREEK = str.maketrans({"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "κ": "kappa", "μ": "mu", "ω": "omega"})


@dataclass(frozen=True, slots=True)
class CitedArticle:
    """A document of literature as a reader would cite it."""

    document_id: str
    title: str
    reference: Reference


@dataclass(frozen=True, slots=True)
class StudyGroups:
    """Documents by the study that they report. A document that is not in them is a study of its own."""

    firsts: Mapping[str, str] = field(default_factory=dict)
    """The first document of the study, by document."""
    sure_firsts: Mapping[str, str] = field(default_factory=dict)
    """The first of the documents that are surely the same study, by document."""

    def find(self, document_id: str) -> str:
        """Return the first document of the study of a document, which may be the document itself."""
        return self.firsts.get(document_id, document_id)

    def find_sure(self, document_id: str) -> str:
        """Return the first of the documents that are surely the study of a document."""
        return self.sure_firsts.get(document_id, document_id)


def group_studies(articles: Iterable[CitedArticle]) -> StudyGroups:
    """Return which of the documents are one study. Notes of patients and repeated documents are left out."""
    keys: dict[str, _ArticleKeys] = {}
    for article in articles:
        if not article.reference.note_type and article.document_id not in keys:
            keys[article.document_id] = _read_keys(article)
    sure = {document_id: document_id for document_id in keys}
    unsure: list[tuple[str, str]] = []
    seen: list[str] = []
    for document_id, own in keys.items():
        for other in seen:
            likeness = _compare(keys[other], own)
            if likeness == "same":
                _join(sure, other, document_id)
            elif likeness == "unsure":
                unsure.append((other, document_id))
        seen.append(document_id)
    firsts = dict(sure)
    for other, document_id in unsure:
        _join(firsts, other, document_id)
    return StudyGroups(firsts, sure)


@dataclass(frozen=True, slots=True)
class _ArticleKeys:
    """What identifies an article, folded for comparison."""

    identifiers: Mapping[str, str]
    """By kind, such as `DOI`."""
    title: str
    title_words: frozenset[str]
    year: int | None
    authors: tuple[frozenset[str], ...]
    """The words of each author's family name."""


def _read_keys(article: CitedArticle) -> _ArticleKeys:
    words = _WORD.findall(_fold(article.title))
    reference = article.reference
    authors = [_fold_name(author) for author in reference.authors]
    return _ArticleKeys(
        {link.label: link.identifier.casefold() for link in reference.links},
        "".join(words),
        frozenset(words),
        int(reference.year) if reference.year.isdecimal() else None,
        tuple(words for words in authors if words),
    )


def _fold(text: str) -> str:
    """Return a text in lower case without markup and accents, with British and American spelling made equal."""
    plain = unicodedata.normalize("NFKD", _TAG.sub("", text)).casefold().translate(_GREEK).replace("&", " and ")
    return "".join(sign for sign in plain if not unicodedata.combining(sign)).replace("z", "s")


def _fold_name(author: str) -> frozenset[str]:
    """Return the words of a family name: those before the comma, else all but initials."""
    family, comma, _ = author.partition(",")
    words = _WORD.findall(family)
    if not comma:
        words = [word for word in words if not (word.isupper() and len(word) <= 3)] or words
    return frozenset(_fold(word) for word in words)


def _join(firsts: dict[str, str], one: str, two: str) -> None:
    """Give the documents of both studies the first document that comes earlier."""
    order = {id_: place for place, id_ in enumerate(firsts)}
    first, second = sorted((firsts[one], firsts[two]), key=lambda id_: order[id_])
    for id_, value in firsts.items():
        if value == second:
            firsts[id_] = first


def _compare(one: _ArticleKeys, two: _ArticleKeys) -> _Likeness:
    """Return whether two documents are one study."""
    kinds = one.identifiers.keys() & two.identifiers.keys()
    is_shared = any(one.identifiers[kind] == two.identifiers[kind] for kind in kinds)
    differs = any(one.identifiers[kind] != two.identifiers[kind] for kind in kinds)
    authors = _compare_authors(one.authors, two.authors)
    if is_shared:
        if _has_like_title(one, two):
            return "same"
        # Abstracts of a meeting, and chapters of a book, can have one DOI.
        return "different" if authors == "different" else "unsure"
    if not one.title or one.title != two.title or authors == "different":
        return "different"
    years = None if one.year is None or two.year is None else abs(one.year - two.year)
    is_known = years == 0 and authors == "same" and bool(one.authors)
    if len(one.title) < (MIN_SHORT_TITLE_LETTERS if is_known else MIN_TITLE_LETTERS):
        return "different"
    if years is not None and years > MAX_YEARS:
        return "different"
    return "same" if is_known and not differs else "unsure"


def _compare_authors(one: tuple[frozenset[str], ...], two: tuple[frozenset[str], ...]) -> _Likeness:
    """Return whether the first authors are the same. Unknown ones, and ones later in the list, are unsure."""
    if not one or not two:
        return "unsure"
    if one[0] & two[0]:
        return "same"
    is_later = any(one[0] & name for name in two) or any(two[0] & name for name in one)
    return "unsure" if is_later else "different"


def _has_like_title(one: _ArticleKeys, two: _ArticleKeys) -> bool:
    """Return whether the titles do not speak against one article: an unknown one, a part, or half of the words."""
    if one.title.startswith(two.title) or two.title.startswith(one.title):
        return True
    shared = len(one.title_words & two.title_words)
    return shared >= _MIN_SHARED_WORDS * len(one.title_words | two.title_words)
