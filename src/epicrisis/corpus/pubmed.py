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

import multiprocessing
import os
import pickle
import re
import shutil
import signal
import tempfile
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TypeAlias

from epicrisis.corpus import pubmed_record
from epicrisis.corpus.reader_base import DeletedDocument, ReaderItem, Skipped, append_fingerprint, printable_path
from epicrisis.corpus.xml_text import BrokenXML, read_records
from epicrisis.errors import InputError
from epicrisis.temporary_folders import TemporaryFolder
from epicrisis.types import Document

Found: TypeAlias = Document | DeletedDocument | Skipped

_TAGS = ("PubmedArticle", "PubmedBookArticle", "DeleteCitation")
_NAME = re.compile(r"pubmed(\d\d)n(\d{1,5})(?!\d)", re.ASCII)


def read_citations(path: Path, details: bool = False) -> Iterator[Found]:
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
        for element in read_records(path, _TAGS):
            anything = True
            if element.tag == "DeleteCitation":
                revision = f"{newest or '99999999'}.99.{file_key}"
                for pmid in pubmed_record.find_pmids(element):
                    yield DeletedDocument(f"pubmed:{pmid}", revision)
                continue
            number += 1
            try:
                document, revised = pubmed_record.read_record(element, file_key, details)
            except (ValueError, RecursionError) as error:
                pmid = next((pmid for part in element for pmid in pubmed_record.find_pmids(part)), "")
                yield Skipped(printable_path(path), f"PMID {pmid}" if pmid else f"record {number}", str(error))
            else:
                newest = max(newest, revised)
                yield document
    except BrokenXML as error:
        yield Skipped(printable_path(path), f"after record {number}", str(error))
        return
    if not anything:
        yield Skipped(printable_path(path), "", "holds no record of PubMed's XML; check what file this is")


def _file_key(name: str) -> str:
    """`2601234` of `pubmed26n1234.xml.gz`; zeros where the name does not say."""
    found = _NAME.search(name)
    return f"{found[1]}{found[2]:0>5}" if found else "0000000"


# -- many files on all cores ----------------------------------------------------------------------------------------


def read_files(paths: Sequence[Path], workers: int | None = None, details: bool = False) -> Iterator[ReaderItem]:
    """What `read` gives of each file, and its mark, by so many processes at once (`None`: one a core), in order.

    Each process reads one file ahead into a temporary one (about 30 MB for a baseline file), of which there are at
    most as many as workers, so that memory stays bounded however slowly the results are taken. One file, or one
    worker, is read in this process. Raises InputError where a process is killed or cannot write, naming its file.
    """
    workers = min(workers or os.cpu_count() or 1, len(paths))
    if workers <= 1:
        for path in paths:
            yield from append_fingerprint(path, read_citations(path, details))
        return
    # Spawned: a fork copies the locks of threads that it does not copy.
    context = multiprocessing.get_context("spawn")
    ahead: deque[tuple[Path, Path, SpawnProcess]] = deque()
    scratch = TemporaryFolder("epicrisis-pubmed-")
    folder = scratch.path
    waiting = iter(enumerate(paths))

    def start() -> None:
        for number, path in islice(waiting, workers - len(ahead)):
            spool = folder / str(number)
            process = context.Process(
                target=_read_ahead, args=(path, spool, details), name=f"reads {printable_path(path.name)}", daemon=True
            )
            process.start()
            ahead.append((path, spool, process))

    try:
        start()
        while ahead:
            path, spool, process = ahead[0]
            process.join()
            if process.exitcode != 0:
                raise InputError(
                    f"{printable_path(path)}: the process that read it was stopped (exit code {process.exitcode}); see that "
                    f"memory and the disk of {tempfile.gettempdir()} suffice, then run again, or with one worker"
                )
            ahead.popleft()
            start()
            yield from _spooled(spool)
            spool.unlink()
    finally:
        for _, _, process in ahead:
            process.kill()
            process.join()
        scratch.close()


_BATCH = 256


def _read_ahead(path: Path, spool: Path, details: bool) -> None:
    """In a process of its own: writes what the file holds to the spool, and stops when nobody waits for it any more."""
    # Ctrl-C reaches every process of the terminal; the one that started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    found = append_fingerprint(path, read_citations(path, details))
    with spool.open("wb") as file:
        while batch := list(islice(found, _BATCH)):
            packed = zlib.compress(pickle.dumps(batch, pickle.HIGHEST_PROTOCOL), 1)
            file.write(len(packed).to_bytes(4, "big") + packed)
            if parent is not None and not parent.is_alive():
                shutil.rmtree(spool.parent, ignore_errors=True)
                return


def _spooled(spool: Path) -> Iterator[ReaderItem]:
    with spool.open("rb") as file:
        while size := file.read(4):
            batch: list[ReaderItem] = pickle.loads(zlib.decompress(file.read(int.from_bytes(size, "big"))))
            yield from batch
