"""Read full texts in JATS (`.nxml`, the format of PubMed Central): one document for each article, with its sections.

References, author notes and the licence are left out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.dates import last_day
from epicrisis.core.types import Document
from epicrisis.corpus.articles.pubmed_record import parse_printed_date
from epicrisis.corpus.base.reader_base import FileRemark, Skipped, skip
from epicrisis.corpus.base.sectioned_text import SectionedText
from epicrisis.corpus.base.xml_text import BrokenXML, element_text, parse_file

if TYPE_CHECKING:
    from lxml.etree import _Element

_DEFAULT_TITLES = {"ack": "Acknowledgements", "glossary": "Glossary", "app": "Appendix", "notes": "Notes"}
_SECTIONS = frozenset(("sec", "boxed-text", "statement", *_DEFAULT_TITLES))
_REVIEWS = frozenset(
    (
        *("reviewer-report", "referee-report", "review-report", "peer-review", "aggregated-review-documents"),
        *("decision-letter", "editor-report", "author-comment", "author-response"),
    )
)
"""Types of sub-articles that are about the article and not part of it."""
_REVIEW_REMARK = "of reviewers or editors left out, no part of the article: to search it, add it as a file of its own"
_CAPTIONED = frozenset(("fig", "table-wrap", "supplementary-material", "media", "chem-struct-wrap"))
_LIFTED = (*_CAPTIONED, "boxed-text", "list", "def-list", "disp-quote", "fn")
"""Elements that publishers put into a paragraph although they are none of its text."""
_LINES = frozenset(("p", "list-item", "def-item", "disp-formula", "fn", "tr", "verse-line"))
_IGNORED = frozenset(
    ("ref-list", "graphic", "object-id", "sec-meta", "permissions", "fn-group", "bio", "label", "title")
)
_PUBLICATION_DATES = frozenset(("epub", "ppub", "epub-ppub", "collection", "pub"))

_RETRACTED_TYPES = frozenset(("retracted-article", "retracted article", "retracted", "withdrawn-article"))
_NOTICE_TYPES = frozenset(("retraction", "retraction-notice", "partial-retraction", "withdrawal"))
_CORRECTION_TYPES = frozenset(("correction", "expression-of-concern", "editorial", "announcement", "other", "addendum"))
_RETRACTED_BY = frozenset(("retraction-forward", "retraction", "retraction-notice", "retraction-in", "retracted-by"))
"""Relations of a retracted article to its notice."""
_CONCERNED_BY = frozenset(("concern-forward", "expression-of-concern", "expression-of-concern-forward"))


def read_articles(path: Path, name: str) -> Iterator[Document | Skipped | FileRemark]:
    """Yield the articles of one file, gzip or plain. A response or sub-article belongs to its article.

    Reviewers' reports, decisions and replies to them are left out and counted.

    The id is `pmc:PMC123`, else `doi:<doi>`, else `file:<name>`, with `#2`, `#3`... for further articles. The text is
    the abstract, then the sections, each below a line with the path of its titles (`Methods / Statistics`). Every
    paragraph, caption and row of a table (cells separated by ` | `) is a line. The date is the earliest publication
    date. In the metadata, `sections` has [start, end, title path] in order, as offsets in characters, headings
    included; the text of a subsection belongs to the subsection only.
    """
    try:
        root = parse_file(path)
    except BrokenXML as error:
        yield skip(path, "", str(error))
        return
    for element in root.iter("{*}*"):
        # JATS exists with and without its namespace.
        element.tag = str(element.tag).rpartition("}")[2]
    articles = [article for article in root.iter("article") if next(article.iterancestors("article"), None) is None]
    if not articles:
        yield skip(path, "", "holds no article of JATS; check what file this is")
    for number, article in enumerate(articles, 1):
        document = _build_document(article, name if number == 1 else f"{name}#{number}")
        where = f"article {number}" if len(articles) > 1 else ""
        yield document or skip(path, where, "holds neither an abstract nor a body")
        if reviews := sum(map(_is_review, article.iter("sub-article", "response"))):
            yield FileRemark(name, "report", _REVIEW_REMARK, reviews)


def _build_document(article: _Element, name: str) -> Document | None:
    """Return the article as a document, or None if it has no text."""
    meta = article.find("front/article-meta")
    if meta is None:
        meta = article.makeelement("article-meta")
    ids = {article_id.get("pub-id-type"): element_text(article_id) for article_id in meta.iterchildren("article-id")}
    number = (ids.get("pmcid") or ids.get("pmc") or "").upper().removeprefix("PMC")
    pmcid, doi = f"PMC{number}" if number else "", ids.get("doi")
    article_type = article.get("article-type")
    text = SectionedText("Text")
    for abstract in (*meta.iterchildren("abstract"), *meta.iterchildren("trans-abstract")):
        kind = (abstract.get("abstract-type") or "").replace("-", " ")
        title = _first_text(abstract, "title") or (f"Abstract ({kind})" if kind else "Abstract")
        _write_content(abstract, (title,), text)
    _write_bodies(article, (), text)
    _write_front(article.find("front"), (), text)
    if not text.lines:
        return None
    authors, groups = _list_authors(meta)
    keywords = map(element_text, meta.iterfind("kwd-group/kwd"))
    metadata = {
        "doi": doi,
        "pmid": ids.get("pmid"),
        "pmcid": pmcid,
        "journal": _first_text(article, ".//journal-meta//journal-title"),
        "publication_types": [article_type] if article_type else [],
        "authors": authors,
        "group_authors": groups,
        "journal_abbreviation": _find_abbreviation(article),
        "issn": _first_text(article, ".//journal-meta//issn"),
        "publisher": _first_text(article, ".//journal-meta//publisher-name"),
        "volume": _first_text(meta, "volume"),
        "issue": _first_text(meta, "issue"),
        "page_range": _first_text(meta, "page-range") or _join_pages(meta),
        "keywords": list(filter(None, keywords)),
        **_find_retraction(article, meta),
        "sections": text.sections,
    }
    file_id = f"doi:{doi}" if doi else f"file:{name}"
    return Document(
        id=f"pmc:{pmcid}" if pmcid else file_id,
        text="\n".join(text.lines),
        title=_find_title(meta),
        source="PubMed Central" if pmcid else name,
        date=_publication_date(meta),
        metadata={key: value for key, value in metadata.items() if value},
    )


def _find_title(meta: _Element) -> str:
    """Return the title without the marks of its footnotes."""
    title = meta.find("title-group/article-title")
    if title is None:
        return ""
    for mark in list(title.iter("xref", "fn")):
        mark.tag, mark.text = "left-out", ""
        for inner in list(mark):
            mark.remove(inner)
    return element_text(title)


def _find_retraction(article: _Element, meta: _Element) -> dict[str, Any]:
    """Return the metadata that mark a retracted article, a notice, or an article with a concern.

    A `retracted-article` beside an article of another type is one that it cites, so the type must say "notice".
    """
    kind = (article.get("article-type") or "").replace("_", "-").lower()
    related = {(element.get("related-article-type") or "").lower() for element in meta.iter("related-article")}
    if kind in _NOTICE_TYPES or (kind in _CORRECTION_TYPES and "retracted-article" in related):
        return {"retraction_notice": True}
    subjects = {element_text(subject).lower() for subject in meta.iterfind("article-categories//subject")}
    if kind in _RETRACTED_TYPES or not related.isdisjoint(_RETRACTED_BY) or not subjects.isdisjoint(_RETRACTED_TYPES):
        return {"retracted": True}
    if not related.isdisjoint(_CONCERNED_BY):
        return {"corrections": [{"type": "ExpressionOfConcernIn"}]}
    return {}


def _list_authors(meta: _Element) -> tuple[list[str], list[str]]:
    """Return the authors in order, and those of them that are organisations. Members of an organisation are none."""
    authors: list[str] = []
    groups: list[str] = []
    for author in meta.iter("contrib"):
        group = author.getparent()
        kind = author.get("contrib-type") or ""
        if not kind and group is not None:
            # A group of contributors without types is one of authors, unless it says that it is another.
            kind = (group.get("content-type") or "author").removesuffix("s")
        if kind != "author" or next(author.iterancestors("collab", "collab-alternatives"), None) is not None:
            continue
        collab = next(author.iter("collab"), None)
        name = "" if collab is not None else _person_name(author)
        if collab is not None:
            name = _own_text(collab)
            groups += [name] if name else []
        if name:
            authors.append(name)
    return authors, groups


def _person_name(author: _Element) -> str:
    """Return `Family, Given, Suffix` of the first name of an author, or a name without parts as it is."""
    names = author.iter("name", "string-name")
    person = next(names, author)
    parts = [_first_text(person, part) for part in ("surname", "given-names", "suffix")]
    if any(parts):
        return ", ".join(filter(None, parts))
    return element_text(person) if person.tag == "string-name" else ""


def _own_text(collab: _Element) -> str:
    """Return the name of an organisation without its members and addresses."""
    name = copy.deepcopy(collab)
    for inner in list(name.iter("contrib-group", "contrib", "aff", "xref")):
        parent = inner.getparent()
        if parent is not None:
            placeholder = inner.makeelement("left-out")
            placeholder.tail = inner.tail
            parent.replace(inner, placeholder)
    return element_text(name)


def _find_abbreviation(article: _Element) -> str:
    """Return the journal's name as PubMed abbreviates it, else another abbreviation."""
    path = ".//journal-meta/journal-id[@journal-id-type='{}']"
    names = [_first_text(article, path.format(kind)) for kind in ("nlm-ta", "iso-abbrev")]
    return next(filter(None, names), _first_text(article, ".//journal-meta//abbrev-journal-title"))


def _join_pages(meta: _Element) -> str:
    """Return `1187-1195`, one page, or the number of an article without pages."""
    first, last = _first_text(meta, "fpage"), _first_text(meta, "lpage")
    pages = (first, last) if last != first else (first,)
    return "-".join(filter(None, pages)) or _first_text(meta, "elocation-id")


def _first_text(element: _Element, path: str) -> str:
    match = element.find(path)
    return element_text(match) if match is not None else ""


def _publication_date(meta: _Element) -> str | None:
    dates = []
    for element in meta.iterchildren("pub-date"):
        if (element.get("pub-type") or element.get("date-type") or "pub") in _PUBLICATION_DATES:
            parts: list[str] = []
            for name in ("year", "month", "season", "day"):
                parts += map(element_text, element.iterchildren(name))
            dates.append(parse_printed_date(" ".join(parts)))
    return min(filter(None, dates), key=last_day, default=None)


def _write_front(front: _Element | None, path: tuple[str, ...], text: SectionedText) -> None:
    """Write the notes before an article's body, such as the availability of its data."""
    for part in front if front is not None else ():
        if part.tag in _DEFAULT_TITLES:
            title = _first_text(part, "title") or _DEFAULT_TITLES[part.tag]
            _write_content(part, (*path, title), text)


def _write_bodies(article: _Element, path: tuple[str, ...], text: SectionedText) -> None:
    for part in article:
        if part.tag in ("body", "back", "floats-group"):
            _write_content(part, path, text)
        elif part.tag in ("sub-article", "response") and not _is_review(part):
            title = _first_text(part, ".//article-title") or str(part.tag)
            _write_bodies(part, (*path, title), text)
            _write_front(part.find("front-stub"), (*path, title), text)


def _is_review(part: _Element) -> bool:
    """Return whether a part of an article is a reviewer's report, an editor's decision or the authors' reply to one."""
    kind = (part.get("article-type") or "").lower()
    article = part.getparent()
    if kind == "reply" and part.tag == "sub-article" and article is not None:
        siblings = article.iterchildren("sub-article")
        return any((sibling.get("article-type") or "").lower() in _REVIEWS for sibling in siblings)
    return kind in _REVIEWS


def _write_content(parent: _Element, path: tuple[str, ...], text: SectionedText) -> None:
    """Write everything below the parent line by line; unknown elements are searched, so that nothing is lost."""
    for child in parent:
        if child.tag in _IGNORED or not isinstance(child.tag, str):
            continue
        if child.tag in _SECTIONS:
            label = _first_text(child, "label") if child.tag == "statement" else ""
            title = " ".join(filter(None, (label, _first_text(child, "title")))) or _DEFAULT_TITLES.get(child.tag, "")
            _write_content(child, (*path, title) if title else path, text)
        elif child.tag in _CAPTIONED:
            captions = [*child.iterchildren("label"), *child.iterchildren("caption")]
            text.add_text(path, " ".join(filter(None, map(element_text, captions))))
            for caption in captions:
                child.remove(caption)
            _write_content(child, path, text)
        elif child.tag == "tr":
            text.add_text(path, " | ".join(map(element_text, child)))
        elif child.tag in _LINES or next(child.iter(*_LINES, *_SECTIONS), None) is None:
            _write_paragraph(child, path, text)
        else:
            _write_content(child, path, text)


def _write_paragraph(element: _Element, path: tuple[str, ...], text: SectionedText) -> None:
    """Write a paragraph, then the figures, lists and others within it."""
    lifted = element.makeelement("lifted")
    for inner in list(element.iter(*_LIFTED)):
        if inner is not element and next(inner.iterancestors("lifted"), None) is None:
            parent = inner.getparent()
            if parent is not None:
                # The text after it stays in place.
                placeholder = inner.makeelement("lifted-from-here")
                parent.replace(inner, placeholder)
                placeholder.tail, inner.tail = f" {inner.tail or ''}", None
            lifted.append(inner)
    text.add_text(path, element_text(element))
    _write_content(lifted, path, text)
