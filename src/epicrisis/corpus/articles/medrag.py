"""Read MedRAG's corpora: JSON lines, one snippet a line; and cut chapters of StatPearls as MedRAG does.

A line has `id` (`Anatomy_Gray_0`, `pubmed23n0001_0`, `article-100024_3`), `title`, `content`, and `contents`, which is
ignored. PubMed's lines have `PMID` as well, or, as written by MedRAG's own script, the id `PMID:12377809`. MedRAG
stores them at `<corpus>/chunk/*.jsonl`, and the corpus is known only from that path. A snippet is a document here,
because MedRAG searches and cites snippets. StatPearls may not be distributed in this form, so its chapters
(`statpearls_NBK430685.tar.gz` of NCBI's FTP server) are cut here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.types import Document
from epicrisis.corpus.base import jsonl, xml_text
from epicrisis.corpus.base.reader_base import Skipped, is_number, skip

if TYPE_CHECKING:
    from lxml.etree import _Element

CORPORA = {"textbooks": "Textbooks", "statpearls": "StatPearls", "wikipedia": "Wikipedia", "pubmed": "PubMed"}

_NOT_METADATA = {"id", "title", "content", "contents", "PMID"}
_SHORT_PARAGRAPH = 200
"""Characters below which a paragraph of StatPearls is added to the previous snippet."""
_MAX_SNIPPET = 1000


def read_snippets(path: Path) -> Iterator[Document | Skipped]:
    """Return an iterator over the snippets in the file's order, with the id `pubmed:<PMID>`, else `medrag:<id>`.

    The source is the corpus in the file's name or in a folder of its path, else `MedRAG`.
    """
    folders = reversed(path.absolute().parent.parts)
    names = map(str.lower, (path.name.split(".")[0], *folders))
    source = next(filter(None, (CORPORA.get(name) for name in names)), "MedRAG")
    return jsonl.convert_objects(path, jsonl.read_objects(path), partial(_build_document, source))


def _build_document(source: str, _: int, line: Mapping[str, Any]) -> Document:
    id_, title, content = _text(line, "id"), _text(line, "title"), _text(line, "content")
    pmid = str(line["PMID"]) if type(line.get("PMID")) in (int, str) else ""
    if id_.startswith("PMID:"):
        pmid = pmid or id_.removeprefix("PMID:")
    if pmid and not is_number(pmid):
        raise ValueError("PMID: not a number")
    if not (pmid or id_.strip()):
        raise ValueError("id: missing; a MedRAG snippet has id, title and content")
    if not content.strip():
        raise ValueError("content: empty; a MedRAG snippet has id, title and content")
    metadata = {key: value for key, value in line.items() if key not in _NOT_METADATA}
    if pmid:
        return Document(
            f"pubmed:{pmid}", content, title=title, source="PubMed", metadata={**metadata, "medrag_id": id_}
        )
    return Document(f"medrag:{id_}", content, title=title, source=source, metadata=metadata)


def _text(line: Mapping[str, Any], name: str) -> str:
    value = line.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name}: not a text")
    return value or ""


def read_statpearls(path: Path) -> Iterator[Document | Skipped]:
    """Yield the snippets of one chapter of StatPearls (`article-100024.nxml`), equal to those of MedRAG's script.

    A snippet is a paragraph, with following short paragraphs and lists as long as there is room. Its title is
    `chapter -- section`, with ` -- heading` after a bold line. As in MedRAG there is a space at each tag (`H 2 O`).
    """
    try:
        root = xml_text.parse_file(path)
    except xml_text.BrokenXML as error:
        yield skip(path, "", str(error))
        return
    title = root.findtext(".//title") or ""
    name = path.name.removesuffix(".nxml")
    snippets: list[tuple[str, str]] = []
    for section in root.findall(".//sec"):
        snippets += _cut_section(section, title)
    if not snippets:
        yield skip(path, "", "no section with a text; leave it out")
    for number, (heading, text) in enumerate(snippets):
        if text.strip():
            yield Document(f"medrag:{name}_{number}", text, title=heading, source=CORPORA["statpearls"])
        else:
            yield skip(path, f"snippet {number}", "empty")


def _cut_section(section: _Element, chapter: str) -> list[tuple[str, str]]:
    """Return (title, text) of each of the section's snippets, without the sections within it."""
    title = (section.findtext("title") or "").strip()
    parts = f"{chapter} -- {title}".split(" -- ")
    section_title = " -- ".join(parts)
    heading = section_title
    snippets: list[tuple[str, str]] = []
    is_open = is_heading = False
    for child in section:
        # A heading is a paragraph of one bold element.
        follows_heading = is_heading
        is_bold = len(child) == 1 and child[0].tag == "bold" and not (child[0].tail or "").strip()
        is_heading = child.tag == "p" and is_bold
        if is_heading:
            heading, is_open = " -- ".join([*parts[:2], _join_texts(child)]), False
        elif child.tag in ("p", "list"):
            texts = list(map(_join_texts, [child] if child.tag == "p" else child))
            text = " ".join(texts)
            fits = is_open and len(snippets[-1][1] + text) < _MAX_SNIPPET
            if fits and (child.tag == "list" or len(text) < _SHORT_PARAGRAPH):
                snippets[-1] = snippets[-1][0], " ".join([snippets[-1][1], *texts])
            elif child.tag == "p" or len(text) < _MAX_SNIPPET:
                snippets.append((heading, text))
                is_open = True
            else:
                snippets += [(heading, item) for item in texts]
                is_open = False
            if child.tag == "list" and follows_heading:
                heading = section_title
    return snippets


def _join_texts(element: _Element) -> str:
    """Return the element's texts, stripped, with a space before each child and each tail."""
    text = (element.text or "").strip()
    for child in element:
        text += (" " if text else "") + _join_texts(child)
        tail = (child.tail or "").strip()
        if tail:
            text += (" " if text else "") + tail
    return text.strip()
