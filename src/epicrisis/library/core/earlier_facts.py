"""Keep structured facts of an earlier export of a day that a later, incremental export of the day does not state.

A document has the facts of one day. An export since yesterday has only the resources that changed. So a fact of another
resource stays in the document, and one whose resource the export states, or withdraws, does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from epicrisis.core.clinical_facts import FACTS, is_fact_list
from epicrisis.core.types import Document, Metadata
from epicrisis.corpus.base.reader_base import StatedSources

_FactLine = tuple[dict[str, Any], str]
"""A stored fact and its line."""


def has_facts(document: Document) -> bool:
    """Return whether a document consists of structured facts."""
    return document.patient is not None and is_fact_list(document.metadata.get(FACTS))


def find_unstated(earlier: Document, stated: StatedSources) -> list[_FactLine]:
    """Return the facts of the document in the library whose sources the addition does not state."""
    if not has_facts(earlier) or earlier.patient != stated.patient:
        return []
    lines: list[_FactLine] = []
    for fact, line in _list_lines(earlier.text, earlier.metadata):
        source = str(fact.get("source", ""))
        if source.startswith(stated.prefix) and source not in stated.sources:
            lines.append((fact, line))
    return lines


def add_facts(document: Document, lines: Iterable[_FactLine]) -> Document:
    """Return the document with the facts of these lines among its own, by time."""
    return _write_lines(document, [*_list_lines(document.text, document.metadata), *lines])


def replace_facts(document: Document, lines: Sequence[_FactLine]) -> Document:
    """Return the document with the facts of these lines alone."""
    return _write_lines(document, lines)


def _list_lines(text: str, metadata: Metadata) -> list[_FactLine]:
    return [(dict(fact), text[fact["start"] : fact["end"]]) for fact in metadata[FACTS]]


def _write_lines(document: Document, lines: Iterable[_FactLine]) -> Document:
    """Return the document with these lines in an order that does not depend on that of the additions."""
    facts: list[dict[str, Any]] = []
    texts: list[str] = []
    offset = 0
    for fact, line in sorted(lines, key=_line_order):
        facts.append({**fact, "start": offset, "end": offset + len(line)})
        texts.append(line)
        offset += len(line) + 1
    return replace(document, text="\n".join(texts), metadata={**document.metadata, FACTS: facts})


def _line_order(line: _FactLine) -> tuple[str, str, str]:
    fact, text = line
    return str(fact.get("time") or ""), str(fact.get("source", "")), text
