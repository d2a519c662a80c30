"""The health report of a library: what is in it, what a reader should know of its texts, and what is wrong with it.

Reads every passage once, piece by piece, on handles of its own: others go on searching and writing. Memory: at most 90
bytes a passage (see `rowkeys`; 3.2 GB at 36 million) and what near duplicates take, see NEAR_LIMIT. Mends nothing, and
does not know how its findings are told (`health_report` does).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from epicrisis.corpus.text_quality import NearDuplicateFinder, has_markup, is_empty
from epicrisis.errors import LibraryBusy, LibraryDamaged
from epicrisis.library.checksums import Damage, verified
from epicrisis.library.engine_errors import ours
from epicrisis.library.health_report import (
    MARKS_DUE,
    SHOWN,
    Contents,
    Finding,
    HealthReport,
    IndexAgreement,
    Pairs,
    Rows,
    Texts,
    damage_told,
    notices,
    problems,
)
from epicrisis.library.journal import Journal
from epicrisis.library.library import Library
from epicrisis.library.passage_table import PassageTable
from epicrisis.library.patients import MIXED, Roster
from epicrisis.library.row_keys import Numbers, RowKeys
from epicrisis.library.word_index import WordIndex, version_of
from epicrisis.types import RETRACTED

if TYPE_CHECKING:
    import pyarrow as pa

NEAR_LIMIT = 1_000_000
"""Near duplicates are looked for among all of so many passages (220 MB), and among about so many of more.

These are chosen by what they say, so that texts that nearly agree are chosen together: a sample of a tenth finds about
a tenth of the pairs, where one by lot would find a hundredth.
"""
OTHERS = "(others)"
"""Stands for the sources met after the first 1,000."""

_SOURCES = 1000
_PIECE = 4096
_COLUMNS = [
    "id",
    "document_id",
    "ordinal",
    "start",
    "end",
    "text",
    "title",
    "source",
    "last_day",
    "facets",
    "content_hash",
    "vector",
]
_LONG_WORD = re.compile(rb"[a-z0-9\x80-\xff]{9,}")
_SPREAD = 2_654_435_761
_KEYS = 1 << 32


def check(library: Library, on_progress: Callable[[int, int], None] | None = None) -> HealthReport:
    """Reads the whole library; `on_progress` hears (passages read, passages of the library).

    Raises LibraryBusy where a writer swept away what was being read (it leaves a reader ten minutes), StorageError or
    LibraryDamaged where it cannot be read.
    """
    info = library.info()
    with closing(Journal(library.path)) as journal, closing(WordIndex(library.path)) as words:
        before = journal.data_version()
        settled = not journal.open_batches()
        journal.check()
        damage = verified(library.path, journal.files())
        try:
            table = PassageTable(library.path, library.manifest.dimensions)
            words.refresh()
            # Nothing was begun in between: both are as of one moment.
            settled = settled and journal.data_version() == before
            scan = _Scan(table.count(), words if settled else None)
            for batch in _batches(library.path, table, _COLUMNS):
                scan.take(batch)
                if on_progress is not None:
                    on_progress(scan.keys.rows, scan.passages)
            only_in_journal, not_in_journal = _acknowledged(scan.keys, journal)
            settled = settled and journal.data_version() == before
            found = _Found(scan, not_in_journal, lambda: _batches(library.path, table, ["id", "document_id"]))
            rows, contents, texts = found.rows(), scan.contents(len(journal.buried())), found.texts()
            agreement = found.agreement(only_in_journal) if settled else IndexAgreement(compared=False)
            unmarked = bool(journal.due())
            if journal.data_version() != before:
                # A compaction may have removed it.
                damage = replace(damage, missing=())
        except LibraryDamaged as error:
            if journal.data_version() == before:
                _name_damage(library.path, damage)
                raise
            raise LibraryBusy(
                f"{library.path} was written to while it was read: check it again when the writer has ended"
            ) from error
    return HealthReport(
        library=info,
        contents=contents,
        texts=texts,
        rows=rows,
        agreement=agreement,
        files=damage,
        problems=problems(info, rows, agreement, damage),
        notices=(
            *notices(info, contents, texts, rows, agreement, damage),
            *([MIXED] if Roster(library).is_mixed() else []),
            *([MARKS_DUE] if unmarked else []),
        ),
    )


def _name_damage(folder: Path, damage: Damage) -> None:
    """Raise LibraryDamaged naming the damaged files, where there are any."""
    if told := damage_told(damage):
        raise LibraryDamaged(f"{folder} cannot be read: {'; '.join(told)}")


def _batches(folder: Path, table: PassageTable, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with ours(folder):
        yield from table.lance.search().select(list(columns)).to_batches(_PIECE)


# -- reading ---------------------------------------------------------------------------------------------------------


class _Tally:
    """Counts, and keeps the first ids."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, ids: Iterable[str]) -> None:
        for each in ids:
            self.count += 1
            if self.count <= SHOWN:
                self._first.append(each)

    @property
    def finding(self) -> Finding:
        return Finding(self.count, tuple(self._first))


class _Scan:
    """What is seen of each passage as it comes by, and the keys of all."""

    def __init__(self, passages: int, words: WordIndex | None) -> None:
        self.passages = passages
        self.keys = RowKeys(passages)
        self.words = None if words is None else _Words(words)
        self.wrong_ids, self.offsets, self.no_vector = _Tally(), _Tally(), _Tally()
        self.empty, self.markup = _Tally(), _Tally()
        self.near = NearDuplicateFinder()
        self.compared = 0
        self._undated, self._retracted = _Tally(), _Tally()
        self._sources: Counter[str] = Counter()
        self._years: Counter[int] = Counter()

    def take(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = pa.Table.from_batches([batch])
        ids, documents, ordinals, digests = (
            rows[name].to_pylist() for name in ("id", "document_id", "ordinal", "content_hash")
        )
        named = list(zip(ids, documents, ordinals, strict=True))
        self.wrong_ids.add(each for each, document, ordinal in named if each != f"{document}#{ordinal}")
        fits = pc.equal(pc.subtract(rows["end"], rows["start"]), pc.utf8_length(rows["text"]))
        fits = pc.and_(fits, pc.greater_equal(rows["start"], 0))
        self.offsets.add(rows["id"].filter(pc.invert(fits)).to_pylist())
        lengths = _lengths(rows)
        self.no_vector.add(ids[row] for row in np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0))).tolist())
        texts = list(zip(rows["title"].to_pylist(), rows["text"].to_pylist(), strict=True))
        for (each, document, ordinal), (title, text) in zip(named, texts, strict=True):
            self._take_text(each, f"{document}#{ordinal}", ordinal, title, text)
        self._take_documents(rows.filter(pc.equal(rows["ordinal"], 0)))
        # The version belongs to the document's key: passages of another one are then no neighbours.
        versions = [hash(key) for key in zip(documents, (digest.hex() for digest in digests), strict=True)]
        self.keys.take([hash(each) for each in ids], versions, [hash(text) for text in texts], ordinals, lengths)
        if self.words is not None:
            self.words.take(ids, digests)

    def _take_text(self, id: str, name: str, ordinal: int, title: str, text: str) -> None:
        if is_empty(text):
            self.empty.add([id])
        # All passages of a document have its title.
        if has_markup(text) or (ordinal == 0 and has_markup(title)):
            self.markup.add([id])
        if self.passages <= NEAR_LIMIT or (
            self.compared < 2 * NEAR_LIMIT and _chosen(text, NEAR_LIMIT / self.passages)
        ):
            self.compared += 1
            self.near.add(name, f"{title}\n{text}")

    def _take_documents(self, firsts: pa.Table) -> None:
        """Documents, by their first passages."""
        ids, days = firsts["document_id"].to_pylist(), firsts["last_day"].to_pylist()
        for source in firsts["source"].to_pylist():
            self._sources[source if source in self._sources or len(self._sources) < _SOURCES else OTHERS] += 1
        self._years.update(day // 10_000 for day in days if day is not None)
        self._undated.add(each for each, day in zip(ids, days, strict=True) if day is None)
        facets = firsts["facets"].to_pylist()
        self._retracted.add(each for each, has in zip(ids, facets, strict=True) if RETRACTED in has)

    def contents(self, deleted: int) -> Contents:
        decades: Counter[str] = Counter()
        for year, documents in sorted(self._years.items()):
            decades[f"{year // 10 * 10}s"] += documents
        return Contents(
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


def _lengths(rows: pa.Table) -> npt.NDArray[np.float32]:
    """Of the vectors; infinite or no number where one of theirs is."""
    vectors = rows["vector"].combine_chunks()
    half = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(vectors), -1).astype(np.float32)
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", half, half)), dtype=np.float32)


def _chosen(text: str, share: float) -> bool:
    """True for that share of the texts, and nearly always alike for texts that nearly agree.

    It is the least hash of two long words in a row that decides: a MinHash of one component.
    """
    # As bytes, which is faster; whatever is not ASCII counts as letters.
    data = text.lower().encode()
    words = _LONG_WORD.findall(data)
    key = min((zlib.crc32(second, zlib.crc32(first)) for first, second in pairwise(words)), default=zlib.crc32(data))
    return key * _SPREAD % _KEYS < share * _KEYS


class _Words:
    """Compares the word index with the passages as they come by."""

    def __init__(self, words: WordIndex) -> None:
        self._words = words
        self._passages = 0
        self.missing = _Tally()
        self._wrong = _Tally()

    def take(self, ids: Sequence[str], digests: Sequence[bytes]) -> None:
        wanted = [(each, version_of(digest.hex())) for each, digest in zip(ids, digests, strict=True)]
        found = Counter(self._words.entries(ids))
        self._passages += len(ids)
        self.missing.add(each for each, version in wanted if (each, version) not in found)
        self._wrong.add(each for each, _ in (found - Counter(wanted)).elements())

    def unknown(self, keys: RowKeys) -> Finding:
        """Entries of the index that are of no passage, or of another version of one."""
        count = max(0, self._words.count() - self._passages + self.missing.count)
        names = list(self._wrong.finding.first)
        known = np.sort(keys.ids)
        for entries in self._words.all_entries() if count > len(names) else ():
            hashes = np.array([hash(each) for each, _ in entries], dtype=np.int64)
            names += [entries[place][0] for place in np.flatnonzero(~_among(hashes, known)).tolist()]
            if len(names) >= min(count, SHOWN):
                break
        return Finding(count, tuple(names[: min(count, SHOWN)]))


# -- what was seen of all --------------------------------------------------------------------------------------------


def _acknowledged(keys: RowKeys, journal: Journal) -> tuple[Finding, Numbers]:
    """Documents of the journal that the table does not hold as they are there, and a row of each of those that the
    table holds and the journal does not know as they are."""
    known, first, passages = keys.documents()
    seen = np.zeros(len(known), dtype=np.bool_)
    lost = _Tally()
    documents = journal.documents()
    while rows := list(islice(documents, _PIECE)):
        wanted = np.array([hash((row.id, row.content_hash)) for row in rows], dtype=np.int64)
        counts = np.array([row.passages for row in rows])
        there = _among(wanted, known)
        places = np.searchsorted(known, wanted[there])
        seen[places] = True
        there[there] = passages[places] == counts[there]
        lost.add(rows[place].id for place in np.flatnonzero(~there).tolist())
    return lost.finding, np.sort(first[~seen])


def _among(values: Numbers, known: Numbers) -> npt.NDArray[np.bool_]:
    """Which of the values are among those known, which are sorted."""
    if not len(known):
        return np.zeros(len(values), dtype=np.bool_)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.asarray(known[places] == values, dtype=np.bool_)


class _Found:
    """The findings, with names: ids are read again for the few rows that are told of."""

    def __init__(self, scan: _Scan, not_in_journal: Numbers, ids: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._scan = scan
        self._not_in_journal = not_in_journal
        self._repeated, self._broken, self._odd = (
            scan.keys.repeated_ids(),
            scan.keys.broken(),
            scan.keys.odd_lengths(),
        )
        self._earlier, self._later = scan.keys.repeated_texts()
        every = (not_in_journal, self._repeated, self._broken, self._odd, self._earlier, self._later)
        self._names = self._named(np.concatenate([rows[:SHOWN] for rows in every]), ids)

    def _named(self, rows: Numbers, ids: Callable[[], Iterator[pa.RecordBatch]]) -> Mapping[int, tuple[str, str]]:
        """(passage id, document id) by row."""
        hashes = self._scan.keys.ids[rows].tolist()
        missing, found = set(hashes), {}
        for batch in ids() if missing else ():
            for each, document in zip(batch["id"].to_pylist(), batch["document_id"].to_pylist(), strict=True):
                if hash(each) in missing:
                    found[hash(each)] = (each, document)
            missing -= found.keys()
            if not missing:
                break
        return {row: found[key] for row, key in zip(rows.tolist(), hashes, strict=True)}

    def _passages(self, rows: Numbers) -> Finding:
        return Finding(len(rows), tuple(self._names[row][0] for row in rows[:SHOWN].tolist()))

    def _documents(self, rows: Numbers) -> Finding:
        return Finding(len(rows), tuple(self._names[row][1] for row in rows[:SHOWN].tolist()))

    def rows(self) -> Rows:
        scan = self._scan
        return Rows(
            wrong_ids=scan.wrong_ids.finding,
            repeated_ids=self._passages(self._repeated),
            broken=self._documents(self._broken),
            offsets=scan.offsets.finding,
            no_vector=scan.no_vector.finding,
            odd_vector=self._passages(self._odd),
        )

    def texts(self) -> Texts:
        scan = self._scan
        count, near = 0, []
        for earlier, later in scan.near.pairs():
            if earlier.rpartition("#")[0] != later.rpartition("#")[0]:
                count += 1
                if count <= SHOWN:
                    near.append((earlier, later))
        return Texts(
            empty=scan.empty.finding,
            markup=scan.markup.finding,
            repeated=Pairs(
                len(self._later),
                tuple(zip(self._passages(self._earlier).first, self._passages(self._later).first, strict=True)),
            ),
            near=Pairs(count, tuple(near)),
            compared=scan.compared,
            crowded=scan.near.not_compared,
        )

    def agreement(self, only_in_journal: Finding) -> IndexAgreement:
        assert self._scan.words is not None
        return IndexAgreement(
            compared=True,
            not_in_words=self._scan.words.missing.finding,
            only_in_words=self._scan.words.unknown(self._scan.keys),
            not_in_journal=self._documents(self._not_in_journal),
            only_in_journal=only_in_journal,
        )
