"""Check the health of a library: its content, the quality of its texts, and contradictions between its parts.

Every passage is read once, in batches, while others may search and write. Memory: up to 90 bytes per passage (see
`RowKeys`; 3.2 GB for 36 million) plus near duplicates (see NEAR_LIMIT). The check changes nothing.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import fields, replace
from itertools import islice, pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from epicrisis.core.errors import LibraryBusy, LibraryDamaged
from epicrisis.core.types import RETRACTED
from epicrisis.corpus.base.text_quality import NearDuplicateFinder, has_markup, is_empty
from epicrisis.library.base.passage_table import Columns
from epicrisis.library.base.remote_store import check_in_folder
from epicrisis.library.core.journal import Journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import MIXED_NOTICE, Roster
from epicrisis.library.engines.checksums import verify_data_files
from epicrisis.library.engines.word_index import WordIndex, version_of
from epicrisis.library.write import health_report as reports
from epicrisis.library.write.health_report import MAX_LISTED, Finding, HealthReport, IndexAgreement

Numbers: TypeAlias = npt.NDArray[np.int64]
BooleanArray: TypeAlias = npt.NDArray[np.bool_]
_Part = TypeVar("_Part", reports.Contents, reports.Texts, reports.Rows, IndexAgreement)

MIN_VECTORS = 100
"""With fewer usable vectors no length is reported as unusual."""
MAX_DEVIATIONS = 5.0
"""Maximum distance from the median length, in robust standard deviations (1.4826 times the median absolute deviation,
and at least 1 % of the median)."""
NEAR_LIMIT = 1_000_000
"""Near duplicates are searched among all of up to this many passages (220 MB), or else in a sample of this size.

The sample is selected by content, so that near duplicates are selected together: a sample of a tenth contains about a
tenth of the pairs, while a random sample would contain a hundredth.
"""
OTHERS = "(others)"
"""Name for all sources after the first 1,000."""

_SOURCES = 1000
_BATCH_ROWS = 4096
_DOCUMENT_COLUMNS = ["document_id", "source", "last_day", "facets"]
_COLUMNS = [*_DOCUMENT_COLUMNS, "id", "ordinal", "start", "end", "text", "title", "content_hash", "vector"]
_LONG_WORD = re.compile(rb"[a-z0-9\x80-\xff]{9,}")
_SPREAD = 2_654_435_761
_KEYS = 1 << 32


def check_health(library: LibraryStore, on_progress: Callable[[int, int], None] | None = None) -> HealthReport:
    """Read the whole library and report its health.

    `on_progress` receives (passages read, passages of the library). Raise LibraryBusy if a writer removed files during
    the check, which it does ten minutes after a change at the earliest. Raise StorageError or LibraryDamaged if the
    library cannot be read.
    """
    check_in_folder(library.path, "library check", "the server checks its own pages (pg_amcheck, data checksums)")
    info = library.info()
    with closing(Journal(library.path)) as journal, closing(WordIndex(library.path)) as words:
        before = journal.data_version()
        is_settled = not journal.open_batches()
        journal.check()
        damage = verify_data_files(library.path, journal.files())
        damage = replace(damage, changed=(*damage.changed, *library.open_table().find_damage()))
        try:
            table = library.open_table()
            words.refresh()
            # Without a new batch since the start, the table and the word index have the same state.
            is_settled = is_settled and journal.data_version() == before
            scan = _Scan(table.count(), words if is_settled else None)
            for columns in table.read_columns(_COLUMNS):
                scan.add(columns)
                if on_progress is not None:
                    on_progress(scan.keys.rows, scan.passages)
            only_in_journal, not_in_journal = _compare_with_journal(scan.keys, journal)
            is_settled = is_settled and journal.data_version() == before
            findings = _Findings(scan, not_in_journal, lambda: table.rows(["id", "document_id"]))
            rows, contents, texts = findings.rows(), scan.contents(len(journal.deletions())), findings.texts()
            agreement = findings.agreement(only_in_journal) if is_settled else IndexAgreement(compared=False)
            has_due_marks = bool(journal.due_targets())
            if journal.data_version() != before:
                # A compaction may have removed the missing files.
                damage = replace(damage, missing=())
        except LibraryDamaged as error:
            if journal.data_version() == before:
                if sentences := reports.describe_damaged_files(damage):
                    raise LibraryDamaged(f"{library.path} cannot be read: {'; '.join(sentences)}") from error
                raise
            raise LibraryBusy(
                f"{library.path} was changed during the check: check it again after the writer has ended"
            ) from error
    notices = list(reports.find_notices(info, contents, texts, rows, agreement, damage))
    if Roster(library).is_mixed():
        notices.append(MIXED_NOTICE)
    if has_due_marks:
        notices.append(reports.MARKS_DUE)
    return HealthReport(
        library=info,
        contents=contents,
        texts=texts,
        rows=rows,
        agreement=agreement,
        files=damage,
        problems=reports.find_problems(info, rows, agreement, damage),
        notices=tuple(notices),
    )


class _Tally:
    """A count and the first ids."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, *ids: str) -> None:
        self.count += len(ids)
        self._first += ids[: MAX_LISTED - len(self._first)]

    @property
    def finding(self) -> Finding:
        return Finding(self.count, tuple(self._first))


class _Scan:
    """Findings about single passages, and the keys of all passages."""

    def __init__(self, passages: int, words: WordIndex | None) -> None:
        self.passages = passages
        self.keys = RowKeys(passages)
        self.words = None if words is None else _WordIndexComparison(words)
        self.wrong_ids, self.offsets, self.no_vector = _Tally(), _Tally(), _Tally()
        self.empty, self.markup = _Tally(), _Tally()
        self.near = NearDuplicateFinder()
        self.compared = 0
        self._undated, self._retracted = _Tally(), _Tally()
        self._sources: Counter[str] = Counter()
        self._years: Counter[int] = Counter()

    def add(self, columns: Columns) -> None:
        """Read some rows with all of _COLUMNS."""
        ids, documents = columns["id"], columns["document_id"]
        ordinals, digests = columns["ordinal"], columns["content_hash"]
        titles, texts = columns["title"], columns["text"]
        for id_, document, ordinal, title, text in zip(ids, documents, ordinals, titles, texts, strict=True):
            name = f"{document}#{ordinal}"
            if id_ != name:
                self.wrong_ids.add(id_)
            if is_empty(text):
                self.empty.add(id_)
            # All passages of a document have its title.
            if has_markup(text) or (ordinal == 0 and has_markup(title)):
                self.markup.add(id_)
            if self.passages <= NEAR_LIMIT or (
                self.compared < 2 * NEAR_LIMIT and _is_in_sample(text, NEAR_LIMIT / self.passages)
            ):
                self.compared += 1
                self.near.add(name, f"{title}\n{text}")
        for id_, start, end, text in zip(ids, columns["start"], columns["end"], texts, strict=True):
            if start < 0 or end - start != len(text):
                self.offsets.add(id_)
        # The length of a vector is infinite or NaN if one of its numbers is.
        vectors = columns["vector"].astype(np.float32)
        lengths = np.asarray(np.sqrt(np.einsum("ij,ij->i", vectors, vectors)), dtype=np.float32)
        unusable = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
        self.no_vector.add(*(ids[row] for row in unusable.tolist()))
        self._add_documents(columns)
        # A document's key includes its version, so passages of another version belong to another document.
        versions = list(map(hash, zip(documents, map(bytes.hex, digests), strict=True)))
        self.keys.add(
            list(map(hash, ids)), versions, list(map(hash, zip(titles, texts, strict=True))), ordinals, lengths
        )
        if self.words is not None:
            self.words.add(ids, digests)

    def _add_documents(self, columns: Columns) -> None:
        """Count the documents whose first passage is among these rows."""
        fields = [columns[name] for name in _DOCUMENT_COLUMNS]
        for document, source, day, facets, ordinal in zip(*fields, columns["ordinal"], strict=True):
            if ordinal != 0:
                continue
            is_listed = source in self._sources or len(self._sources) < _SOURCES
            self._sources[source if is_listed else OTHERS] += 1
            if day is None:
                self._undated.add(document)
            else:
                self._years[day // 10_000] += 1
            if RETRACTED in facets:
                self._retracted.add(document)

    def contents(self, deleted: int) -> reports.Contents:
        """Return the summary of the content, given the number of recorded deletions."""
        decades: Counter[str] = Counter()
        for year, documents in sorted(self._years.items()):
            decades[f"{year // 10 * 10}s"] += documents
        return reports.Contents(
            documents=len(self.keys.documents()[0]),
            passages=self.keys.rows,
            by_source=dict(self._sources),
            by_decade=dict(decades),
            first_year=min(self._years, default=None),
            last_year=max(self._years, default=None),
            undated=self._undated.finding,
            retracted=self._retracted.finding,
            deleted=deleted,
        )


def _is_in_sample(text: str, share: float) -> bool:
    """Return True for this share of all texts, with nearly always the same result for near duplicates.

    The least hash of two adjacent long words decides: a MinHash of one component.
    """
    # Bytes are faster than text. All bytes outside ASCII count as letters.
    data = text.lower().encode()
    hashes = [zlib.crc32(second, zlib.crc32(first)) for first, second in pairwise(_LONG_WORD.findall(data))]
    return min(hashes, default=zlib.crc32(data)) * _SPREAD % _KEYS < share * _KEYS


class _WordIndexComparison:
    """Compares the word index with the passages of each batch."""

    def __init__(self, words: WordIndex) -> None:
        self._words = words
        self._passages = 0
        self.missing = _Tally()
        self._wrong = _Tally()

    def add(self, ids: Sequence[str], digests: Sequence[bytes]) -> None:
        versions = map(version_of, map(bytes.hex, digests))
        expected = list(zip(ids, versions, strict=True))
        entries = Counter(self._words.entries(ids))
        self._passages += len(ids)
        self.missing.add(*(id_ for id_, version in expected if (id_, version) not in entries))
        self._wrong.add(*(id_ for id_, _ in (entries - Counter(expected)).elements()))

    def unexpected(self, keys: RowKeys) -> Finding:
        """Return the entries without a passage, or of another version of it."""
        count = max(0, self._words.count() - self._passages + self.missing.count)
        names = list(self._wrong.finding.first)
        sorted_ids = np.sort(keys.ids)
        for entries in self._words.all_entries() if count > len(names) else ():
            hashes = np.array([hash(id_) for id_, _ in entries], dtype=np.int64)
            names += [entries[index][0] for index in np.flatnonzero(~_is_in(hashes, sorted_ids)).tolist()]
            if len(names) >= min(count, MAX_LISTED):
                break
        return Finding(count, tuple(names[: min(count, MAX_LISTED)]))


def _compare_with_journal(keys: RowKeys, journal: Journal) -> tuple[Finding, Numbers]:
    """Return the documents of the journal with another or no row in the table, and one row of each document of the
    table with another or no entry in the journal."""
    table_documents, first_rows, passages = keys.documents()
    is_acknowledged = np.zeros(len(table_documents), dtype=np.bool_)
    only_in_journal = _Tally()
    documents = journal.documents()
    while rows := list(islice(documents, _BATCH_ROWS)):
        hashes = np.array([hash((row.id, row.content_hash)) for row in rows], dtype=np.int64)
        counts = np.array([row.passages for row in rows])
        agrees = _is_in(hashes, table_documents)
        positions = np.searchsorted(table_documents, hashes[agrees])
        is_acknowledged[positions] = True
        agrees[agrees] = passages[positions] == counts[agrees]
        only_in_journal.add(*(rows[index].id for index in np.flatnonzero(~agrees).tolist()))
    return only_in_journal.finding, np.sort(first_rows[~is_acknowledged])


def _is_in(values: Numbers, sorted_values: Numbers) -> BooleanArray:
    """Return a mask of the values contained in `sorted_values`."""
    if not len(sorted_values):
        return np.zeros(len(values), dtype=np.bool_)
    positions = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    return np.asarray(sorted_values[positions] == values, dtype=np.bool_)


class _Findings:
    """Builds the findings with the ids of the reported rows, which are read again."""

    def __init__(self, scan: _Scan, not_in_journal: Numbers, read_ids: Callable[[], Iterator[dict[str, Any]]]) -> None:
        self._scan = scan
        self._not_in_journal = not_in_journal
        self._repeated, self._broken = scan.keys.repeated_ids(), scan.keys.broken()
        self._odd = scan.keys.odd_lengths()
        self._earlier, self._later = scan.keys.repeated_texts()
        reported = (not_in_journal, self._repeated, self._broken, self._odd, self._earlier, self._later)
        rows = np.concatenate([rows[:MAX_LISTED] for rows in reported])
        hashes = scan.keys.ids[rows].tolist()
        missing = set(hashes)
        names = {}
        for row in read_ids() if missing else ():
            key = hash(row["id"])
            if key in missing:
                names[key] = (row["id"], row["document_id"])
                missing.remove(key)
            if not missing:
                break
        # The passage id and the document id of each row.
        self._names = {row: names[key] for row, key in zip(rows.tolist(), hashes, strict=True)}

    def _finding(self, rows: Numbers, name_index: int) -> Finding:
        """Return the number of rows, and the first names: of passages (0) or documents (1)."""
        return Finding(len(rows), tuple(self._names[row][name_index] for row in rows[:MAX_LISTED].tolist()))

    def rows(self) -> reports.Rows:
        scan = self._scan
        return reports.Rows(
            wrong_ids=scan.wrong_ids.finding,
            repeated_ids=self._finding(self._repeated, 0),
            broken=self._finding(self._broken, 1),
            offsets=scan.offsets.finding,
            no_vector=scan.no_vector.finding,
            odd_vector=self._finding(self._odd, 0),
        )

    def texts(self) -> reports.Texts:
        scan = self._scan
        repeated = tuple(zip(self._finding(self._earlier, 0).first, self._finding(self._later, 0).first, strict=True))
        near_count, near = 0, []
        for earlier, later in scan.near.pairs():
            if earlier.rpartition("#")[0] != later.rpartition("#")[0]:
                near_count += 1
                if near_count <= MAX_LISTED:
                    near.append((earlier, later))
        return reports.Texts(
            empty=scan.empty.finding,
            markup=scan.markup.finding,
            repeated=reports.Pairs(len(self._later), repeated),
            near=reports.Pairs(near_count, tuple(near)),
            compared=scan.compared,
            crowded=scan.near.not_compared,
        )

    def agreement(self, only_in_journal: Finding) -> IndexAgreement:
        assert self._scan.words is not None
        return IndexAgreement(
            compared=True,
            not_in_words=self._scan.words.missing.finding,
            only_in_words=self._scan.words.unexpected(self._scan.keys),
            not_in_journal=self._finding(self._not_in_journal, 1),
            only_in_journal=only_in_journal,
        )


class RowKeys:
    """Compact keys of up to `capacity` passages, to find duplicates, gaps and outliers with 32 bytes per passage.

    Passages are rows, numbered from 0 in order of arrival. Ids and texts are 64-bit hashes: in a library of 36 million
    passages two of them collide with a probability of 1 in 30,000. Sorting takes up to 58 more bytes per passage.
    """

    def __init__(self, capacity: int) -> None:
        self.rows = 0
        self._ids = np.empty(capacity, dtype=np.int64)
        self._documents = np.empty(capacity, dtype=np.int64)
        self._texts = np.empty(capacity, dtype=np.int64)
        self._ordinals = np.empty(capacity, dtype=np.int32)
        self._lengths = np.empty(capacity, dtype=np.float32)

    def add(
        self,
        ids: Sequence[int],
        documents: Sequence[int],
        texts: Sequence[int],
        ordinals: Sequence[int],
        lengths: npt.NDArray[np.float32],
    ) -> None:
        """Append rows; `lengths` are those of their vectors. Raise ValueError beyond the capacity."""
        rows = slice(self.rows, self.rows + len(ids))
        self._ids[rows] = ids
        self._documents[rows] = documents
        self._texts[rows] = texts
        self._ordinals[rows] = ordinals
        self._lengths[rows] = lengths
        self.rows = rows.stop

    @property
    def ids(self) -> Numbers:
        """The hashes of the ids, by row."""
        return self._ids[: self.rows]

    def repeated_ids(self) -> Numbers:
        """Return the rows with the id of an earlier row."""
        order = np.argsort(self.ids, kind="stable")
        return np.sort(order[_equals_previous(self.ids[order])])

    def broken(self) -> Numbers:
        """Return one row of each document with missing ordinals. Repeated ordinals are ignored."""
        documents, ordinals = self._documents[: self.rows], self._ordinals[: self.rows]
        order = np.lexsort((ordinals, documents))
        order = order[~(_equals_previous(documents[order]) & _equals_previous(ordinals[order]))]
        wrong: Numbers = order[ordinals[order] != _positions_in_runs(documents[order])]
        return wrong[~_equals_previous(documents[wrong])]

    def repeated_texts(self) -> tuple[Numbers, Numbers]:
        """Return (earlier rows, later rows) of equal texts in different documents, ordered by the later row."""
        texts, documents = self._texts[: self.rows], self._documents[: self.rows]
        order = np.argsort(texts, kind="stable")
        first = order[np.arange(self.rows) - _positions_in_runs(texts[order])]
        is_repeated = documents[order] != documents[first]
        by_row = np.argsort(order[is_repeated])
        return first[is_repeated][by_row], order[is_repeated][by_row]

    def odd_lengths(self) -> Numbers:
        """Return the rows with an unusually long or short vector, without unusable vectors."""
        lengths = self._lengths[: self.rows]
        usable = np.isfinite(lengths) & (lengths > 0)
        if np.count_nonzero(usable) < MIN_VECTORS:
            return np.empty(0, dtype=np.int64)
        median = float(np.median(lengths[usable]))
        deviation = max(1.4826 * float(np.median(np.abs(lengths[usable] - median))), 0.01 * median)
        return np.flatnonzero(usable & (np.abs(lengths - median) > MAX_DEVIATIONS * deviation))

    def documents(self) -> tuple[Numbers, Numbers, Numbers]:
        """Return keys, first rows and passage counts of all documents, ordered by key."""
        keys, first, passages = np.unique(self._documents[: self.rows], return_index=True, return_counts=True)
        return keys, first, passages


def _equals_previous(values: npt.NDArray[np.integer]) -> BooleanArray:
    """Return a mask of the values equal to their predecessor."""
    mask = np.zeros(len(values), dtype=np.bool_)
    mask[1:] = values[1:] == values[:-1]
    return mask


def _positions_in_runs(values: npt.NDArray[np.integer]) -> Numbers:
    """Return, for each value, the number of equal values directly before it."""
    positions = np.arange(len(values))
    return positions - np.maximum.accumulate(np.where(_equals_previous(values), 0, positions))


def without_ids(report: HealthReport) -> HealthReport:
    """Return the report without ids of documents and passages, which tell of patients. The counts stay."""
    contents, rows, agreement = _drop_ids(report.contents), _drop_ids(report.rows), _drop_ids(report.agreement)
    texts = _drop_ids(report.texts)
    texts = replace(texts, repeated=replace(texts.repeated, first=()), near=replace(texts.near, first=()))
    notices = list(reports.find_notices(report.library, contents, texts, rows, agreement, report.files))
    notices += [notice for notice in report.notices if notice in (MIXED_NOTICE, reports.MARKS_DUE)]
    problems = reports.find_problems(report.library, rows, agreement, report.files)
    return replace(
        report,
        library=replace(report.library, sources=()),
        contents=replace(contents, by_source={}),
        texts=texts,
        rows=rows,
        agreement=agreement,
        problems=problems,
        notices=tuple(notices),
    )


def _drop_ids(part: _Part) -> _Part:
    """Return a part of a report whose findings name no id."""
    values: dict[str, Any] = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, Finding):
            values[field.name] = Finding(value.count)
    return replace(part, **values)
