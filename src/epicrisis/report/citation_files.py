"""Write sources for reference managers: BibTeX, RIS and CSL-JSON.

    text = write_bibtex(list_answer_sources(answer))

Texts are printable lines without control characters, and escaped, so that no title can add a field or an entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from epicrisis.core.answers import Answer, Citation
from epicrisis.core.printable import printable, printable_json
from epicrisis.core.references import Reference, build_reference, name_document
from epicrisis.core.types import ArticleMark, Document, Passage

_MARKED_NOTE = "This article is marked: {}"
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "$&%#_"},
}
_LATEX_SPECIAL = re.compile(r"[\\{}$&%#_~^]")
_VERBATIM_SPECIAL = re.compile(r"[\\{}%]")
_KEY_CHARACTERS = re.compile(r"[^A-Za-z0-9]")
_INITIALS = re.compile(r"[A-Z]{1,3}")
_PAGES = re.compile(r"\b([A-Za-z]?\d+)\s*[-\u2010-\u2015]\s*([A-Za-z]?\d+)")
_BIBTEX_TYPES = {
    "article-journal": "article",
    "article": "article",
    "chapter": "incollection",
    "entry-encyclopedia": "incollection",
    "book": "book",
    "paper-conference": "inproceedings",
    "thesis": "phdthesis",
    "report": "techreport",
}
"""Other types are `misc`."""
_RIS_TYPES = {
    "article-journal": "JOUR",
    "article": "JOUR",
    "article-magazine": "MGZN",
    "article-newspaper": "NEWS",
    "chapter": "CHAP",
    "entry-encyclopedia": "ENCYC",
    "book": "BOOK",
    "paper-conference": "CPAPER",
    "thesis": "THES",
    "report": "RPRT",
    "webpage": "ELEC",
    "dataset": "DATA",
}
"""Other types are `GEN`."""


@dataclass(frozen=True, slots=True)
class PersonName:
    """A name of an author or editor."""

    family: str
    """The name of an organisation, or of a person whose parts are unknown, if `given` is empty."""
    given: str = ""
    suffix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CitedSource:
    """A source to cite. Texts may hold any character: the writers make them printable and escape them."""

    id: str
    title: str
    source: str
    """The collection or file, named where the journal is unknown."""
    date: str | None
    reference: Reference
    marks: tuple[ArticleMark, ...] = ()
    quotations: tuple[str, ...] = field(default=())
    """Sentences of the source that an answer rests on."""

    @property
    def type(self) -> str:
        """The type of CSL; `article-journal` for an article with a PMID or PMCID, and `document` if unknown."""
        if self.reference.publication.type:
            return self.reference.publication.type
        if any(link.label in ("PMID", "PMCID") for link in self.reference.links):
            return "article-journal"
        return "webpage" if self.reference.publication.url else "document"

    @property
    def identifiers(self) -> Mapping[str, str]:
        """The PMID, PMCID and DOI, by name."""
        return {link.label: link.identifier for link in self.reference.links}

    @property
    def container(self) -> str:
        """The journal or book; empty for other documents."""
        publication = self.reference.publication
        return publication.book or publication.journal or self.reference.journal

    @property
    def heading(self) -> str:
        """The title without its final full stop, or the id of a document without a title."""
        title = " ".join(printable(name_document(self.title, self.id)).split())
        is_sentence = title.endswith(".") and not title.endswith("..")
        return (title[:-1] if is_sentence else title) or printable(self.id)

    @property
    def authors(self) -> tuple[PersonName, ...]:
        """The authors in order."""
        groups = frozenset(self.reference.publication.group_authors)
        return tuple(parse_name(name, is_group=name in groups) for name in self.reference.authors)

    @property
    def editors(self) -> tuple[PersonName, ...]:
        """The editors in order."""
        return tuple(map(parse_name, self.reference.publication.editors))


def parse_name(name: str, *, is_group: bool = False) -> PersonName:
    """Return the parts of `Family, Given, Suffix`. A name without a comma, or of an organisation, is not divided."""
    text = " ".join(printable(name).split())
    if is_group:
        return PersonName(text)
    family, *others = (part.strip() for part in text.split(","))
    given, suffix = (*others, "", "")[:2]
    return PersonName(family, given, suffix)


def list_answer_sources(answer: Answer) -> tuple[CitedSource, ...]:
    """Return the cited documents of an answer in the order of their first citation, with all sentences cited."""
    citations = answer.shown_citations
    by_document: dict[str, list[Citation]] = {}
    for citation in citations:
        by_document.setdefault(citation.document_id, []).append(citation)
    sources: list[CitedSource] = []
    for id_, group in by_document.items():
        first = group[0]
        quotations = tuple(dict.fromkeys(citation.quotation for citation in group))
        sources.append(
            CitedSource(
                id=id_,
                title=first.title,
                source=first.source,
                date=first.date,
                reference=first.reference,
                marks=first.marks,
                quotations=quotations,
            )
        )
    return tuple(sources)


def list_passage_sources(passages: Iterable[Passage]) -> tuple[CitedSource, ...]:
    """Return the documents of these passages in the order of their first passages."""
    sources: dict[str, CitedSource] = {}
    for passage in passages:
        if passage.document_id not in sources:
            sources[passage.document_id] = make_source(passage)
    return tuple(sources.values())


def make_source(passage: Passage) -> CitedSource:
    """Return the document of a passage as a source to cite."""
    reference = build_reference(passage)
    return CitedSource(
        id=passage.document_id,
        title=passage.title,
        source=passage.source,
        date=passage.date,
        reference=reference,
        marks=passage.marks,
        quotations=(),
    )


def make_document_source(document: Document) -> CitedSource:
    """Return a document as a source to cite."""
    passage = Passage(
        id=f"{document.id}#0",
        document_id=document.id,
        ordinal=0,
        start=0,
        end=len(document.text),
        text=document.text,
        title=document.title,
        source=document.source,
        date=document.date,
        patient=document.patient,
        metadata=document.metadata,
    )
    return make_source(passage)


def write_bibtex(sources: Iterable[CitedSource]) -> str:
    """Return the sources as BibTeX in UTF-8. Special characters of LaTeX are escaped, and braces are balanced."""
    entries: list[str] = []
    keys: set[str] = set()
    for source in sources:
        kind = _BIBTEX_TYPES.get(source.type, "misc")
        lines = [f"@{kind}{{{_make_key(source, keys)},"]
        for name, value in _list_bibtex_fields(source, kind):
            if value:
                lines.append(f"  {name} = {{{value}}},")
        entries.append("\n".join([*lines, "}"]))
    return "\n\n".join(entries) + "\n" if entries else ""


def _list_bibtex_fields(source: CitedSource, kind: str) -> Iterator[tuple[str, str]]:
    publication = source.reference.publication
    # The second braces keep the capitals of names such as EGFR.
    yield "title", f"{{{_escape_latex(source.heading)}}}"
    yield "author", " and ".join(map(_write_bibtex_name, source.authors))
    yield "editor", " and ".join(map(_write_bibtex_name, source.editors))
    container = {"article": "journal", "incollection": "booktitle", "inproceedings": "booktitle"}.get(kind, "")
    if container:
        yield container, _escape_latex(source.container)
    elif kind == "misc":
        yield "howpublished", _escape_latex(source.container or source.source)
    yield "year", _escape_latex(source.reference.year)
    yield "volume", _escape_latex(publication.volume)
    yield "number", _escape_latex(publication.issue)
    yield "pages", _PAGES.sub(r"\1--\2", _escape_latex(publication.page_range))
    yield "edition", _escape_latex(publication.edition)
    yield (
        {"techreport": "institution", "phdthesis": "school"}.get(kind, "publisher"),
        _escape_latex(publication.publisher),
    )
    yield "address", _escape_latex(publication.publisher_place)
    yield "isbn", _escape_latex(publication.isbn)
    yield "issn", _escape_latex(publication.issn)
    for label, identifier in source.identifiers.items():
        yield label.lower(), _escape_verbatim(identifier)
    yield "url", _escape_verbatim(publication.url)
    yield "note", _escape_latex(_describe_marks(source))


def _write_bibtex_name(name: PersonName) -> str:
    parts = (name.family, name.suffix, name.given)
    if not name.given:
        # Braces keep the words of an organisation together, `and` among them.
        return f"{{{_escape_latex(name.family)}}}"
    return ", ".join(_protect_and(_escape_latex(part)) for part in parts if part)


def _protect_and(text: str) -> str:
    """Return a part of a name in braces if it has the word `and`, which would divide it."""
    return f"{{{text}}}" if "and" in text.lower().split() else text


def _escape_latex(text: str) -> str:
    return _LATEX_SPECIAL.sub(lambda match: _LATEX[match[0]], " ".join(printable(text).split()))


def _escape_verbatim(text: str) -> str:
    """Return an identifier or address, which programs read verbatim, with braces and others percent-encoded."""
    return _VERBATIM_SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}" if match[0] != "%" else r"\%", printable(text))


def _make_key(source: CitedSource, keys: set[str]) -> str:
    """Return a key that no earlier entry has, and add it to `keys`."""
    key = base = _KEY_CHARACTERS.sub("", source.id)[:40] or "source"
    number = 1
    while key.lower() in keys:
        number += 1
        key = f"{base}-{number}"
    keys.add(key.lower())
    return key


def write_ris(sources: Iterable[CitedSource]) -> str:
    """Return the sources as RIS in UTF-8: one tag a line, and no text can begin another line."""
    lines: list[str] = []
    for source in sources:
        for tag, value in _list_ris_tags(source):
            if text := " ".join(printable(value).split()):
                lines.append(f"{tag}  - {text}")
        lines += ["ER  - ", ""]
    return "\r\n".join(lines)


def _list_ris_tags(source: CitedSource) -> Iterator[tuple[str, str]]:
    publication, identifiers = source.reference.publication, source.identifiers
    yield "TY", _RIS_TYPES.get(source.type, "GEN")
    yield "TI", source.heading
    for author in source.authors:
        yield "AU", _write_ris_name(author)
    for editor in source.editors:
        yield "A2", _write_ris_name(editor)
    yield "T2", source.container
    if source.reference.journal != source.container:
        yield "J2", source.reference.journal
    if not source.container:
        yield "DP", source.source
    yield "PY", source.reference.year
    if source.date and len(source.date) >= len("2015-06"):
        yield "DA", source.date[:10].replace("-", "/")
    yield "VL", publication.volume
    yield "IS", publication.issue
    first, last = split_pages(publication.page_range)
    yield "SP", first
    yield "EP", last
    yield "ET", publication.edition
    yield "PB", publication.publisher
    yield "CY", publication.publisher_place
    yield "SN", publication.issn or publication.isbn
    yield "DO", identifiers.get("DOI", "")
    yield "AN", identifiers.get("PMID", "")
    yield "C2", identifiers.get("PMCID", "")
    yield "UR", publication.url or next((link.url for link in source.reference.links), "")
    for quotation in source.quotations:
        yield "N1", quotation
    yield "N1", _describe_marks(source)


def _write_ris_name(name: PersonName) -> str:
    return ", ".join(filter(None, (name.family, name.given, name.suffix)))


def split_pages(pages: str) -> tuple[str, str]:
    """Return the first and the last page, the last one complete: `1187` and `1195` of `1187-95`."""
    match = _PAGES.fullmatch(pages.strip())
    if match is None:
        return pages, ""
    first, last = match.groups()
    if first.isdigit() and last.isdigit() and len(last) < len(first):
        last = first[: len(first) - len(last)] + last
    return first, last


def write_csl_json(sources: Iterable[CitedSource]) -> str:
    """Return the sources as CSL-JSON, the format of Zotero, Pandoc and citation processors."""
    items = list(map(make_csl_item, sources))
    return printable_json(json.dumps(items, ensure_ascii=False, indent=2)) + "\n"


def make_csl_item(source: CitedSource) -> dict[str, Any]:
    """Return the source as an item of CSL, without fields that are unknown."""
    publication, identifiers = source.reference.publication, source.identifiers
    first, last = split_pages(publication.page_range)
    short = source.reference.journal if source.reference.journal != source.container else ""
    fields: dict[str, Any] = {
        "type": source.type,
        "title": source.heading,
        "author": _write_csl_names(source.authors),
        "editor": _write_csl_names(source.editors),
        "container-title": source.container,
        "container-title-short": short,
        "volume": publication.volume,
        "issue": publication.issue,
        "page": f"{first}-{last}" if last else first,
        "edition": publication.edition,
        "publisher": publication.publisher,
        "publisher-place": publication.publisher_place,
        "ISBN": publication.isbn,
        "ISSN": publication.issn,
        "URL": publication.url,
        **identifiers,
        "note": _describe_marks(source),
    }
    item: dict[str, Any] = {"id": source.id}
    for name, value in fields.items():
        if value:
            item[name] = " ".join(printable(value).split()) if isinstance(value, str) else value
    if parts := _list_date_parts(source):
        item["issued"] = {"date-parts": [parts]}
    return item


def _write_csl_names(names: Sequence[PersonName]) -> list[dict[str, str]]:
    csl_names: list[dict[str, str]] = []
    for name in names:
        if not name.given:
            csl_names.append({"literal": name.family})
        else:
            suffix = {"suffix": name.suffix} if name.suffix else {}
            csl_names.append({"family": name.family, "given": _separate_initials(name.given), **suffix})
    return csl_names


def _separate_initials(given: str) -> str:
    """Return initials as `M. P.`, which processors divide, and other given names as they are."""
    return " ".join(f"{letter}." for letter in given) if _INITIALS.fullmatch(given) else given


def _list_date_parts(source: CitedSource) -> list[int]:
    """Return year, month and day as far as they are known."""
    date = source.date or source.reference.year
    return [int(part) for part in date[:10].split("-") if part.isdecimal()]


def _describe_marks(source: CitedSource) -> str:
    return _MARKED_NOTE.format(", ".join(source.marks)) if source.marks else ""


CITATION_WRITERS: Mapping[str, Callable[[Iterable[CitedSource]], str]] = {
    ".bib": write_bibtex,
    ".ris": write_ris,
    ".csl.json": write_csl_json,
}
"""How sources are written, by the ending of the file."""


def find_citation_suffix(name: str) -> str:
    """Return the ending of a file of sources, such as `.csl.json`; empty for other files."""
    return next((writer for writer in CITATION_WRITERS if name.lower().endswith(writer)), "")
