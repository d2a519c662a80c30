"""MedRAG's corpora as they lie on disk: JSON lines, one ready-made snippet a line.

A line has `id` (`Anatomy_Gray_0`, `pubmed23n0001_0`, `article-100024_3`), `title`, `content`, and `contents`: title and
content in one, for its BM25, left out here. PubMed's have `PMID` as well, or, as MedRAG's own script writes them, the
id `PMID:12377809`; Wikipedia's have `wiki_id`. MedRAG keeps them at `<corpus>/chunk/*.jsonl`, and the corpus is told
from that path alone. A snippet is a document here, because MedRAG searches and cites snippets.

StatPearls may not be handed out in this form, so that its chapters (`statpearls_NBK430685.tar.gz` of NCBI's FTP server)
are cut here. Knows no dump of Wikipedia; raw textbooks (`.txt`) are read by the reader of text files and cut by
`splitting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.corpus import jsonl, xml_text
from epicrisis.corpus.reader_base import Skipped, printable_path
from epicrisis.types import Document

if TYPE_CHECKING:
    from lxml.etree import _Element

CORPORA = {"textbooks": "Textbooks", "statpearls": "StatPearls", "wikipedia": "Wikipedia", "pubmed": "PubMed"}
"""The folder's name in MedRAG, and the document's source."""

_TEXTS = ("id", "title", "content")
_LEFT_OUT = {*_TEXTS, "contents", "PMID"}
_SHORT_PARAGRAPH = 200
_SNIPPET = 1000
"""Characters that a snippet of StatPearls stays below when something is added to it."""


def read_snippets(path: Path) -> Iterator[Document | Skipped]:
    """The snippets in the file's order: `pubmed:<PMID>` where there is a PMID, else `medrag:<id>`.

    The source is the corpus, where a folder of the path or the file's own name says which, else `MedRAG`. A line that
    is no snippet is left out, with its number and the reason.
    """
    source = _source(path)
    for item in jsonl.read_objects(path):
        if isinstance(item, Skipped):
            yield item
            continue
        number, line = item
        try:
            yield _document(line, source)
        except ValueError as error:
            yield Skipped(printable_path(path), f"line {number}", str(error))


def _source(path: Path) -> str:
    names = [part.lower() for part in (path.name.split(".")[0], *reversed(path.absolute().parent.parts))]
    return next((CORPORA[name] for name in names if name in CORPORA), "MedRAG")


def _document(line: Mapping[str, Any], source: str) -> Document:
    """Raises ValueError with a reason that repeats nothing of the line."""
    id_, title, content = (_text(line, name) for name in _TEXTS)
    pmid = str(line["PMID"]) if type(line.get("PMID")) in (int, str) else ""
    if id_.startswith("PMID:"):
        pmid = pmid or id_.removeprefix("PMID:")
    if pmid and not (pmid.isascii() and pmid.isdecimal()):
        raise ValueError("PMID: not a number")
    if not (pmid or id_.strip()):
        raise ValueError("id: missing; a MedRAG snippet has id, title and content")
    if not content.strip():
        raise ValueError("content: empty; a MedRAG snippet has id, title and content")
    metadata = {key: value for key, value in line.items() if key not in _LEFT_OUT}
    if pmid:
        return Document(f"pubmed:{pmid}", content, title, "PubMed", metadata={**metadata, "medrag_id": id_})
    return Document(f"medrag:{id_}", content, title, source, metadata=metadata)


def _text(line: Mapping[str, Any], name: str) -> str:
    value = line.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name}: not a text")
    return value or ""


def read_statpearls(path: Path) -> Iterator[Document | Skipped]:
    """The snippets of one chapter of StatPearls (`article-100024.nxml`), the same as MedRAG's script makes.

    A snippet is a paragraph, with the short ones and the lists that follow as long as there is room; its title is
    `chapter -- section`, and ` -- heading` where a bold line heads it. As in MedRAG a space stands at each tag
    (`H 2 O`), which a like-for-like comparison needs; for reading, the full-text reader gives the better text.
    """
    try:
        root = xml_text.parse_file(path)
    except xml_text.BrokenXML as error:
        yield Skipped(printable_path(path), "", str(error))
        return
    title = root.findtext(".//title") or ""
    name = path.name.removesuffix(".nxml")
    snippets = [snippet for section in root.findall(".//sec") for snippet in _snippets(section, title)]
    if not snippets:
        yield Skipped(printable_path(path), "", "no section with a text; leave it out")
    for number, (heading, text) in enumerate(snippets):
        if text.strip():
            yield Document(f"medrag:{name}_{number}", text, heading, CORPORA["statpearls"])
        else:
            yield Skipped(printable_path(path), f"snippet {number}", "empty")


def _snippets(section: _Element, chapter: str) -> list[tuple[str, str]]:
    """(title, text) of each of the section's snippets; sections within it are not looked into."""
    title_element = next((child for child in section if child.tag == "title"), None)
    title = "" if title_element is None else (title_element.text or "").strip()
    parts = f"{chapter} -- {title}".split(" -- ")
    plain = " -- ".join(parts)
    heading = plain
    out: list[tuple[str, str]] = []
    open_ = False
    before: _Element | None = None
    for child in section:
        if _is_heading(child):
            heading, open_ = " -- ".join([*parts[:2], _joined(child)]), False
        elif child.tag in ("p", "list"):
            texts = [_joined(child)] if child.tag == "p" else [_joined(item) for item in child]
            text = " ".join(texts)
            fits = open_ and len(out[-1][1] + text) < _SNIPPET
            if fits and (child.tag == "list" or len(text) < _SHORT_PARAGRAPH):
                out[-1] = out[-1][0], " ".join([out[-1][1], *texts])
            elif child.tag == "p" or len(text) < _SNIPPET:
                out.append((heading, text))
                open_ = True
            else:
                out += [(heading, each) for each in texts]
                open_ = False
            if child.tag == "list" and before is not None and _is_heading(before):
                heading = plain
        before = child
    return out


def _is_heading(element: _Element) -> bool:
    """A paragraph of one bold element."""
    if element.tag != "p" or len(element) != 1:
        return False
    return element[0].tag == "bold" and not (element[0].tail or "").strip()


def _joined(element: _Element) -> str:
    """The element's texts, stripped, with a space before each child and each text behind one."""
    text = (element.text or "").strip()
    for child in element:
        text += (" " if text else "") + _joined(child)
        tail = (child.tail or "").strip()
        if tail:
            text += (" " if text else "") + tail
    return text.strip()
