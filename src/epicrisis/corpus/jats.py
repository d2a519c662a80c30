"""Full texts in JATS (`.nxml`, PubMed Central's form): one document an article, its text by section.

Knows nothing of folders or of PubMed's citations. References, author notes and the licence are left out: of what
stands behind the body, acknowledgements, appendices, notes and glossaries are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from epicrisis.corpus.pubmed_dates import parse_printed_date
from epicrisis.corpus.reader_base import Skipped, printable_path
from epicrisis.corpus.xml_text import BrokenXML, element_text, parse_file
from epicrisis.dates import last_day
from epicrisis.types import Document

if TYPE_CHECKING:
    from lxml.etree import _Element

_UNTITLED = {"ack": "Acknowledgements", "glossary": "Glossary", "app": "Appendix", "notes": "Notes"}
_SECTIONS = frozenset(("sec", "boxed-text", *_UNTITLED))
_CAPTIONED = frozenset(("fig", "table-wrap", "supplementary-material", "media", "chem-struct-wrap"))
_LIFTED = (*_CAPTIONED, "boxed-text", "list", "def-list", "disp-quote")
"""What publishers put into a paragraph though it is none of its text."""
_LINES = frozenset(("p", "list-item", "def-item", "disp-formula", "fn", "tr"))
_LEFT_OUT = frozenset(
    ("ref-list", "graphic", "object-id", "sec-meta", "permissions", "fn-group", "bio", "label", "title")
)
_OUT = frozenset(("epub", "ppub", "epub-ppub", "collection", "pub"))
"""Kinds of a date on which the article itself came out."""


def read_articles(path: Path, name: str) -> Iterator[Document | Skipped]:
    """The articles of one file, gzip or plain; a response or sub-article belongs to the article it stands in.

    The id is `pmc:PMC123`, else `doi:<doi>`, else `file:<name>` (`name`: the path relative to what the user named,
    with `#2`, `#3`... for further articles of the file). The text is the abstract, then the sections in their order,
    each below a line with the path of its titles (`Methods / Statistics`); every paragraph, caption and row of a table
    (cells parted by ` | `) is a line. The date is the earliest on which the article came out. In the metadata,
    `sections` has [start, end, title path] in the text's order, offsets in characters, the heading included; they do
    not overlap, so that a section of subsections is theirs.
    """
    try:
        root = parse_file(path)
    except BrokenXML as error:
        yield Skipped(printable_path(path), "", str(error))
        return
    for element in root.iter("{*}*"):
        # JATS comes with and without its namespace.
        element.tag = str(element.tag).rpartition("}")[2]
    articles = [each for each in root.iter("article") if next(each.iterancestors("article"), None) is None]
    if not articles:
        yield Skipped(printable_path(path), "", "holds no article of JATS; check what file this is")
    for number, article in enumerate(articles, 1):
        document = _document(article, name if number == 1 else f"{name}#{number}")
        where = f"article {number}" if len(articles) > 1 else ""
        yield document or Skipped(printable_path(path), where, "holds neither an abstract nor a body")


def _document(article: _Element, name: str) -> Document | None:
    front = article.find("front")
    meta = front.find("article-meta") if front is not None else None
    if meta is None:
        meta = article.makeelement("article-meta")
    ids = {each.get("pub-id-type"): element_text(each) for each in meta.iterchildren("article-id")}
    number = (ids.get("pmcid") or ids.get("pmc") or "").upper().removeprefix("PMC")
    pmcid, doi = f"PMC{number}" if number else "", ids.get("doi")
    kind = article.get("article-type")
    writer = _written(article, meta)
    if not writer.lines:
        return None
    metadata = {
        "doi": doi,
        "pmid": ids.get("pmid"),
        "pmcid": pmcid,
        "journal": _first(article, ".//journal-meta//journal-title"),
        "publication_types": [kind] if kind else [],
        "authors": [name for each in meta.iterfind(".//contrib[@contrib-type='author']") if (name := _author(each))],
        "keywords": [told for each in meta.iterfind("kwd-group/kwd") if (told := element_text(each))],
        "retracted": kind == "retracted-article",
        "sections": writer.sections,
    }
    return Document(
        id=f"pmc:{pmcid}" if pmcid else f"doi:{doi}" if doi else f"file:{name}",
        text="\n".join(writer.lines),
        title=_first(meta, "title-group/article-title"),
        source="PubMed Central" if pmcid else name,
        date=_date(meta),
        metadata={key: value for key, value in metadata.items() if value},
    )


def _first(element: _Element, path: str) -> str:
    found = element.find(path)
    return element_text(found) if found is not None else ""


def _author(contributor: _Element) -> str:
    surname, given = _first(contributor, ".//surname"), _first(contributor, ".//given-names")
    return ", ".join(filter(None, (surname, given))) or _first(contributor, "collab")


def _date(meta: _Element) -> str | None:
    printed = [
        " ".join(element_text(part) for name in ("year", "month", "season", "day") for part in each.iterchildren(name))
        for each in meta.iterchildren("pub-date")
        if (each.get("pub-type") or each.get("date-type") or "pub") in _OUT
    ]
    return min((date for each in printed if (date := parse_printed_date(each))), key=last_day, default=None)


# -- the text by section --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Writer:
    """The lines so far, with a heading wherever the path of titles changes."""

    lines: list[str] = field(default_factory=list)
    sections: list[list[int | str]] = field(default_factory=list)
    length: int = 0
    """Of the lines joined, the last line's end included."""
    path: tuple[str, ...] | None = None

    def head(self, path: tuple[str, ...]) -> None:
        if path != self.path:
            self.path = path
            title = " / ".join(path)
            self.sections.append([self.length, self.length, title])
            self.write(title)

    def line(self, path: tuple[str, ...], told: str) -> None:
        if told:
            self.head(path or ("Text",))
            self.write(told)

    def write(self, told: str) -> None:
        self.lines.append(told)
        self.length += len(told) + 1
        self.sections[-1][1] = self.length - 1


def _written(article: _Element, meta: _Element) -> _Writer:
    writer = _Writer()
    for abstract in (*meta.iterchildren("abstract"), *meta.iterchildren("trans-abstract")):
        kind = (abstract.get("abstract-type") or "").replace("-", " ")
        _content(abstract, (_first(abstract, "title") or (f"Abstract ({kind})" if kind else "Abstract"),), writer)
    _bodies(article, (), writer)
    return writer


def _bodies(article: _Element, path: tuple[str, ...], writer: _Writer) -> None:
    for part in article:
        if part.tag in ("body", "back", "floats-group"):
            _content(part, path, writer)
        elif part.tag in ("sub-article", "response"):
            title = _first(part, ".//article-title") or str(part.tag)
            _bodies(part, (*path, title), writer)


def _content(holder: _Element, path: tuple[str, ...], writer: _Writer) -> None:
    """Everything below the holder, line by line; what is not known is looked into, so that nothing is lost."""
    for child in holder:
        if child.tag in _LEFT_OUT or not isinstance(child.tag, str):
            continue
        if child.tag in _SECTIONS:
            title = _first(child, "title") or _UNTITLED.get(child.tag, "")
            _content(child, (*path, title) if title else path, writer)
        elif child.tag in _CAPTIONED:
            _captioned(child, path, writer)
        elif child.tag == "tr":
            writer.line(path, " | ".join(element_text(cell) for cell in child))
        elif child.tag in _LINES or next(child.iter(*_LINES, *_SECTIONS), None) is None:
            _paragraph(child, path, writer)
        else:
            _content(child, path, writer)


def _paragraph(element: _Element, path: tuple[str, ...], writer: _Writer) -> None:
    lifted = element.makeelement("lifted")
    for each in list(element.iter(*_LIFTED)):
        if each is not element and next(each.iterancestors("lifted"), None) is None:
            _lift(each, lifted)
    writer.line(path, element_text(element))
    _content(lifted, path, writer)


def _lift(element: _Element, to: _Element) -> None:
    """Moves the element and leaves what follows it where it stands."""
    stand_in = element.makeelement("lifted-from-here")
    parent = element.getparent()
    if parent is not None:
        parent.replace(element, stand_in)
        stand_in.tail, element.tail = f" {element.tail or ''}", None
    to.append(element)


def _captioned(element: _Element, path: tuple[str, ...], writer: _Writer) -> None:
    """A figure, a table or a supplement: a line of label and caption, then the rest."""
    parts = [element_text(each) for name in ("label", "caption") for each in element.iterchildren(name)]
    writer.line(path, " ".join(filter(None, parts)))
    for each in list(element.iterchildren("label", "caption")):
        element.remove(each)
    _content(element, path, writer)
