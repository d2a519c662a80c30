"""Read PubMed's baseline and update files in constant memory: one document for each citation, and deletions.

Files may be read in any order, because the store keeps the latest revision of each document. A revision is
`<date>.<version>.<file>`, of fixed lengths, so that it sorts as text:

* the citation's DateRevised (else DateCompleted, else `00000000`);
* the version of the PMID, two digits, as a few journals publish several versions under one PMID;
* the file's year and number, as a citation may be sent again, corrected, with the same date.

A deletion has no date and is at the end of its file. It gets the greatest DateRevised of the file and version 99, so it
wins over everything before it and loses to a citation revised later. Deletions in a file without citations are final
(`99999999`).
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
from itertools import chain, islice
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TypeAlias

from epicrisis.core.types import Document
from epicrisis.corpus.articles import pubmed_record
from epicrisis.corpus.base.reader_base import (
    DeletedDocument,
    ReaderItem,
    Skipped,
    append_fingerprint,
    path_error,
    printable_path,
    skip,
)
from epicrisis.corpus.base.xml_text import BrokenXML, read_records
from epicrisis.system.temporary_folders import TemporaryFolder

PubMedItem: TypeAlias = Document | DeletedDocument | Skipped

_BATCH = 256
_TAGS = ("PubmedArticle", "PubmedBookArticle", "DeleteCitation")
_NAME = re.compile(r"pubmed(\d\d)n(\d{1,5})(?!\d)", re.ASCII)


def read_citations(path: Path) -> Iterator[PubMedItem]:
    """Yield the citations of one file, gzip or plain, in its order, and the deletions.

    The text is the abstract, each labelled section on its own line (`METHODS: ...`); else the abstracts in other
    languages, each after its language (`[fre] ...`); else the title, with `"abstract": false` in the metadata. A
    missing title is replaced by the vernacular one, or the book's. The date is the journal issue's, else the electronic
    one; for a book's chapter the later of both.

    A record without PMID, or without title and abstract, is `Skipped`. A file that breaks off yields the complete
    records and then a `Skipped` with the place.
    """
    number = 0
    newest = ""
    is_empty = True
    # `2601234` for `pubmed26n1234.xml.gz`.
    match = _NAME.search(path.name)
    file_key = f"{match[1]}{match[2]:0>5}" if match else "0000000"
    try:
        for element in read_records(path, _TAGS):
            is_empty = False
            if element.tag == "DeleteCitation":
                revision = f"{newest or '99999999'}.99.{file_key}"
                for pmid in pubmed_record.find_pmids(element):
                    yield DeletedDocument(f"pubmed:{pmid}", revision)
                continue
            number += 1
            try:
                document, revised = pubmed_record.read_record(element, file_key)
            except (ValueError, RecursionError) as error:
                pmid = next(chain.from_iterable(map(pubmed_record.find_pmids, element)), "")
                yield skip(path, f"PMID {pmid}" if pmid else f"record {number}", str(error))
            else:
                newest = max(newest, revised)
                yield document
    except BrokenXML as error:
        yield skip(path, f"after record {number}", str(error))
        return
    if is_empty:
        yield skip(path, "", "holds no record of PubMed's XML; check what file this is")


def read_files(paths: Sequence[Path], workers: int | None = None) -> Iterator[ReaderItem]:
    """Yield the items of `read_citations` and the fingerprint of each file, in order.

    The files are read by `workers` processes at once (None: one for each core), each one file ahead into a temporary
    file (about 30 MB for a baseline file), so memory stays bounded even if the results are consumed slowly. One file,
    or one worker, is read in this process. Raises InputError if a process is killed or cannot write.
    """
    workers = min(workers or os.cpu_count() or 1, len(paths))
    if workers <= 1:
        for path in paths:
            yield from append_fingerprint(path, read_citations(path))
        return
    # A fork would copy the locks of threads without the threads.
    context = multiprocessing.get_context("spawn")
    ahead: deque[tuple[Path, Path, SpawnProcess]] = deque()
    scratch = TemporaryFolder("epicrisis-pubmed-")
    queue = iter(enumerate(paths))

    def start() -> None:
        for number, path in islice(queue, workers - len(ahead)):
            spool = scratch.path / str(number)
            process = context.Process(
                target=_read_ahead, args=(path, spool), name=f"reads {printable_path(path.name)}", daemon=True
            )
            process.start()
            ahead.append((path, spool, process))

    try:
        start()
        while ahead:
            path, spool, process = ahead[0]
            process.join()
            if process.exitcode != 0:
                cure = f"free memory, or space on the disk of {tempfile.gettempdir()}, and run again"
                raise path_error(path, f"the process that read it was stopped (exit code {process.exitcode}); {cure}")
            ahead.popleft()
            start()
            with spool.open("rb") as file:
                while size := file.read(4):
                    batch: list[ReaderItem] = pickle.loads(zlib.decompress(file.read(int.from_bytes(size, "big"))))
                    yield from batch
            spool.unlink()
    finally:
        for _, _, process in ahead:
            process.kill()
            process.join()
        scratch.close()


def _read_ahead(path: Path, spool: Path) -> None:
    """Write the file's items to the spool, in a separate process; stop if the parent process has ended."""
    # Ctrl-C reaches every process of the terminal, SIGTERM every process of a service. Only the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    items = append_fingerprint(path, read_citations(path))
    with spool.open("wb") as file:
        while batch := list(islice(items, _BATCH)):
            packed = zlib.compress(pickle.dumps(batch, pickle.HIGHEST_PROTOCOL), 1)
            file.write(len(packed).to_bytes(4, "big") + packed)
            if parent is not None and not parent.is_alive():
                shutil.rmtree(spool.parent, ignore_errors=True)
                return
