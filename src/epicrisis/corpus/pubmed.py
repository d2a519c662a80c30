"""PubMed's baseline and update files: one document a citation, deletions told, in constant memory.

Knows nothing of libraries: that the latest revision of a document wins, whatever the order of the files, is the
store's doing; the revisions given here make it possible.

A revision is `<date>.<version>.<file>`, of fixed lengths, so that it sorts as text: the citation's DateRevised (else
DateCompleted, else `00000000`); the PMID's version, two digits, as a few journals publish several versions under one
PMID; the file's year and number, as a citation may be sent again, corrected, with the same date. A deletion has no
date of its own. It stands at the end of its file, so it gets the greatest DateRevised of that file and version 99: it
wins over everything before it and loses to a citation that is revised later. A file with deletions alone gives no
date; they are final (`99999999`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from epicrisis.types import Document

from . import pubmed_record
from .inputs import Deleted, Skipped, shown
from .xmltext import BrokenXML, records

Found: TypeAlias = Document | Deleted | Skipped

_TAGS = ("PubmedArticle", "PubmedBookArticle", "DeleteCitation")
_NAME = re.compile(r"pubmed(\d\d)n(\d{1,5})(?!\d)", re.ASCII)


def read(path: Path, details: bool = False) -> Iterator[Found]:
    """The citations of one file, gzip or plain, in its order, and the deletions.

    The text is the abstract, each labelled section on a line of its own (`METHODS: ...`); where there is none, the
    abstracts in other languages, each behind its language (`[fre] ...`); else the title, and the metadata say
    `"abstract": false`. A title that is not there is the vernacular one, or the book's. The date is the journal
    issue's, else the electronic one (see `pubmed_record.iso_date`); of a book's chapter the later of the book's and the
    chapter's. The keys of the metadata stand in `pubmed_record`; `details` adds affiliations, references, grants,
    chemicals and what else only a bibliography needs: about as much again as the rest.

    A record without PMID, or without title and abstract, is Skipped. A file that breaks off gives the complete records
    before and then says where.
    """
    number = 0
    newest = ""
    anything = False
    file_key = _file_key(path.name)
    try:
        for element in records(path, _TAGS):
            anything = True
            if element.tag == "DeleteCitation":
                revision = f"{newest or '99999999'}.99.{file_key}"
                for pmid in pubmed_record.pmids_of(element):
                    yield Deleted(f"pubmed:{pmid}", revision)
                continue
            number += 1
            try:
                document, revised = pubmed_record.document(element, file_key, details)
            except (ValueError, RecursionError) as error:
                pmid = next(pubmed_record.pmids_of(element), "")
                yield Skipped(shown(path), f"PMID {pmid}" if pmid else f"record {number}", str(error))
            else:
                newest = max(newest, revised)
                yield document
    except BrokenXML as error:
        yield Skipped(shown(path), f"after record {number}", str(error))
        return
    if not anything:
        yield Skipped(shown(path), "", "holds no record of PubMed's XML; check what file this is")


def _file_key(name: str) -> str:
    """`2601234` of `pubmed26n1234.xml.gz`; zeros where the name does not say."""
    found = _NAME.search(name)
    return f"{found[1]}{found[2]:0>5}" if found else "0000000"
