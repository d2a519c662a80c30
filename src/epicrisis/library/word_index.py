"""The word index: BM25 over titles and texts, in tantivy.

Keeps no text: it finds ids and scores. Does not know which passages the library holds now; the library drops hits whose
`version` (of the document's content) it does not hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.dates import first_day, last_day
from epicrisis.errors import LibraryDamaged
from epicrisis.library.engine_errors import REPAIR, ours
from epicrisis.library.passage_table import StoredPassage
from epicrisis.temporary_folders import TemporaryFolder
from epicrisis.types import RETRACTION_FACETS, Passage, Scope, list_facets

if TYPE_CHECKING:
    import tantivy

NAME = "words"
META = "meta.json"
"""Names the segments of the last commit."""
_META_LOCK = ".tantivy-meta.lock"
_ANALYZER = "english"
_LITERATURE = "none"
_HEAP = 64_000_000
_VERSIONS = 1 << 56
_PIECE = 50_000


@dataclass(frozen=True, slots=True)
class WordHit:
    """`version` stands for the document's content when it was indexed, see `version_of`."""

    passage_id: str
    version: int
    score: float


def version_of(content_hash: str) -> int:
    """56 bits that stand for the content hash, as they fit tantivy's integers."""
    return int.from_bytes(hashlib.blake2b(content_hash.encode(), digest_size=7).digest(), "big")


class WordIndex:
    """The tantivy index of one library. Raises StorageError or LibraryDamaged whatever tantivy itself raises."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        import tantivy

        self._folder = folder / NAME
        self._analyzer = _analyzer()
        self._writer: tantivy.IndexWriter | None = None
        self._links: _Links | None = None
        with ours(self._folder):
            if create:
                self._folder.mkdir()
                self._index = tantivy.Index(_schema(), path=str(self._folder))
            else:
                self._links = None if _is_writable(self._folder) else _Links(self._folder)
                self._index = tantivy.Index.open(str(self._links.path if self._links else self._folder))
            self._index.register_tokenizer(_ANALYZER, self._analyzer)
            self._index.config_reader("manual")
            self._schema = self._index.schema
            self.refresh()

    def refresh(self) -> None:
        """Moves on to what a writer has committed since."""
        with ours(self._folder):
            if self._links is not None:
                self._links.renew()
            self._index.reload()

    def close(self) -> None:
        """Waits for merges under way. Uncommitted changes are lost."""
        if self._writer is not None:
            with ours(self._folder):
                try:
                    self._writer.wait_merging_threads()
                finally:
                    self._writer = None
        if self._links is not None:
            self._links.close()

    def count(self) -> int:
        with ours(self._folder):
            return int(self._index.searcher().num_docs)

    def mark(self) -> int:
        """tantivy's opstamp of the last commit; grows with every commit."""
        with ours(self._folder):
            try:
                return int(json.loads((self._folder / META).read_bytes())["opstamp"])
            except (KeyError, TypeError, RecursionError) as error:
                raise LibraryDamaged(f"{self._folder / META} has no opstamp: {REPAIR}") from error

    # -- writing ------------------------------------------------------------------------------------------------------

    def replace(self, document_ids: Sequence[str], passages: Iterable[StoredPassage]) -> int:
        """Takes these documents out, puts these passages in, and commits; the commit's opstamp.

        When it fails, nothing of it is in the index and the next call begins afresh.
        """
        try:
            with ours(self._folder):
                if self._writer is None:
                    self._open_writer()
                assert self._writer is not None
                for document_id in document_ids:
                    self._writer.delete_documents_by_term("document_id", document_id)
                for stored in passages:
                    self._writer.add_document(_as_document(stored))
                return self._commit()
        except BaseException:
            self._writer = None
            raise

    def _open_writer(self) -> None:
        self._writer = self._index.writer(_HEAP, 1)
        # After a kill, files of an unfinished commit may lie here, and the next commit would trip over their names.
        self._writer.garbage_collect_files()

    def _commit(self) -> int:
        assert self._writer is not None
        return int(self._writer.commit())

    # -- reading ------------------------------------------------------------------------------------------------------

    def search(
        self, query: str, limit: int, scope: Scope, within: Sequence[str] | None, *, patients: bool = True
    ) -> list[WordHit]:
        """At most `limit` hits of highest BM25 score, best first, equals in no order. No word left: no hits.

        `patients=False`: no passage is of a patient's record, so that none has to be left out.
        """
        tokens = list(dict.fromkeys(self._analyzer.analyze(query)))
        if not tokens:
            return []
        with ours(self._folder):
            searcher = self._index.searcher()
            # tantivy makes room for as many as are asked.
            limit = min(limit, searcher.num_docs + 1)
            found = searcher.search(self._query(tokens, scope, within, patients), limit, count=False).hits
            addresses = [address for _, address in found]
            versions = searcher.fast_field_values("version", addresses) if addresses else []
            return [
                WordHit(str(searcher.doc(address)["id"][0]), int(version or 0), float(score))
                for (score, address), version in zip(found, versions, strict=True)
            ]

    def entries(self, passage_ids: Sequence[str]) -> list[tuple[str, int]]:
        """(passage id, version) of every entry of these passages, in no order."""
        from tantivy import Query

        with ours(self._folder):
            return self._entries(Query.term_set_query(self._schema, "id", list(passage_ids)))

    def all_entries(self) -> Iterator[list[tuple[str, int]]]:
        """The same of all passages, piece by piece."""
        from tantivy import FieldType, Query

        pieces = self.count() // _PIECE + 1
        for piece in range(pieces):
            # Versions are hashes: equal spans of them hold about equally many entries.
            first, end = (_VERSIONS * each // pieces for each in (piece, piece + 1))
            with ours(self._folder):
                yield self._entries(Query.range_query(self._schema, "version", FieldType.Integer, first, end - 1))

    def _entries(self, query: tantivy.Query) -> list[tuple[str, int]]:
        searcher = self._index.searcher()
        # Its own annotations lack the count.
        counted: Any = searcher.search(query, 1)
        addresses = [address for _, address in searcher.search(query, max(counted.count, 1), count=False).hits]
        versions = searcher.fast_field_values("version", addresses) if addresses else []
        return [(str(searcher.doc(each)["id"][0]), int(n or 0)) for each, n in zip(addresses, versions, strict=True)]

    def _query(
        self, tokens: Sequence[str], scope: Scope, within: Sequence[str] | None, patients: bool
    ) -> tantivy.Query:
        from tantivy import FieldType, Occur, Query

        schema = self._schema
        words = [(Occur.Should, Query.term_query(schema, "body", token, "freq")) for token in tokens]
        seen = [_LITERATURE] if scope.patient is None else [_LITERATURE, _patient(scope.patient)]
        filters = [Query.term_set_query(schema, "patient", seen)] if patients else []
        if scope.as_of is not None:
            until = last_day(scope.as_of)
            filters.append(Query.range_query(schema, "last_day", FieldType.Integer, upper_bound=until))
        if scope.since is not None:
            since = first_day(scope.since)
            filters.append(Query.range_query(schema, "last_day", FieldType.Integer, lower_bound=since))
        filters += [Query.term_set_query(schema, "facets", sorted(names)) for names in scope.required_facets()]
        if within is not None:
            filters.append(Query.term_set_query(schema, "id", list(within)))
        clauses = [(Occur.Must, Query.boolean_query(words))]
        clauses += [(Occur.Must, Query.const_score_query(condition, 0.0)) for condition in filters]
        if scope.hidden:
            clauses.append((Occur.MustNot, Query.term_set_query(schema, "document_id", sorted(scope.hidden))))
        if scope.without_retracted:
            clauses.append((Occur.MustNot, Query.term_set_query(schema, "facets", sorted(RETRACTION_FACETS))))
        if len(clauses) == 1:
            # The words alone, so that tantivy passes over blocks that cannot be among the best.
            return Query.boolean_query(words)
        return Query.boolean_query(clauses)


class _Links:
    """A temporary folder of links to the files of an index, for tantivy's lock: it makes one also to read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scratch = TemporaryFolder("epicrisis-words-")
        self.path = self._scratch.path
        self.renew()

    def renew(self) -> None:
        """Link what is new; where links are not to be had, copy it."""
        for path in self._folder.iterdir():
            place = self.path / path.name
            if path.suffix == ".lock" or place.is_symlink() or place.exists():
                continue
            try:
                place.symlink_to(path)
            except OSError:
                shutil.copyfile(path, place)

    def close(self) -> None:
        self._scratch.close()


def _is_writable(folder: Path) -> bool:
    """Whether tantivy can take its lock in the folder."""
    lock = folder / _META_LOCK
    return os.access(folder, os.W_OK) and (not lock.exists() or os.access(lock, os.W_OK))


def _schema() -> tantivy.Schema:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", tokenizer_name=_ANALYZER, index_option="freq")
    builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("document_id", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("patient", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("facets", tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("last_day", indexed=True, fast=True)
    builder.add_integer_field("version", fast=True)
    return builder.build()


def _analyzer() -> tantivy.TextAnalyzer:
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple())
    for step in (
        Filter.remove_long(100),
        Filter.lowercase(),
        Filter.ascii_fold(),
        Filter.stopword("english"),
        Filter.stemmer("english"),
    ):
        builder = builder.filter(step)
    return builder.build()


def _patient(patient: str) -> str:
    return f"p:{patient}"


def _as_document(stored: StoredPassage) -> tantivy.Document:
    from tantivy import Document

    passage: Passage = stored.passage
    values: dict[str, Any] = {
        "body": f"{passage.title}\n{passage.text}",
        "id": passage.id,
        "document_id": passage.document_id,
        "patient": _LITERATURE if passage.patient is None else _patient(passage.patient),
        "version": version_of(stored.content_hash),
        "facets": sorted(list_facets(passage.metadata)),
    }
    if passage.date is not None:
        values["last_day"] = last_day(passage.date)
    return Document(**values)
