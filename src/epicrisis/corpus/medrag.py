"""MedRAG's corpora as they lie on disk: JSON lines, one ready-made snippet a line.

A line has `id` (`Anatomy_Gray_0`, `pubmed23n0001_0`, `article-100024_3`), `title`, `content`, and `contents`: title and
content in one, for its BM25, left out here. PubMed's have `PMID` as well, or, as MedRAG's own script writes them, the
id `PMID:12377809`; Wikipedia's have `wiki_id`. MedRAG keeps them at `<corpus>/chunk/*.jsonl`, and the corpus is told
from that path alone. A snippet is a document here, because MedRAG searches and cites snippets.

Knows no dump: StatPearls, which MedRAG may not hand out, has to be made into lines by MedRAG's own script, as does
Wikipedia; raw textbooks (`.txt`) are read by the reader of text files and cut by `splitting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from epicrisis.types import Document

from . import jsonl
from .inputs import Skipped, shown

CORPORA = {"textbooks": "Textbooks", "statpearls": "StatPearls", "wikipedia": "Wikipedia", "pubmed": "PubMed"}
"""The folder's name in MedRAG, and the document's source."""

_TEXTS = ("id", "title", "content")
_LEFT_OUT = {*_TEXTS, "contents", "PMID"}


def read(path: Path) -> Iterator[Document | Skipped]:
    """The snippets in the file's order: `pubmed:<PMID>` where there is a PMID, else `medrag:<id>`.

    The source is the corpus, where a folder of the path or the file's own name says which, else `MedRAG`. A line that
    is no snippet is left out, with its number and the reason.
    """
    source = _source(path)
    for item in jsonl.objects(path):
        if isinstance(item, Skipped):
            yield item
            continue
        number, line = item
        try:
            yield _document(line, source)
        except ValueError as error:
            yield Skipped(shown(path), f"line {number}", str(error))


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
