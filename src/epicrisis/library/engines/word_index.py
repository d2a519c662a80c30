"""The word index: BM25 over titles and texts, in tantivy.

The index stores ids and no text. It may be a commit before or behind the passage table, so each entry has a version
(of its document's content), and searches drop hits whose version the table does not have.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.dates import first_day, last_day
from epicrisis.core.errors import LibraryDamaged
from epicrisis.core.types import RETRACTION_FACETS, Scope, list_facets
from epicrisis.library.base.engine_errors import REPAIR, translate_errors
from epicrisis.library.base.passage_table import StoredPassage
from epicrisis.system.temporary_folders import TemporaryFolder

if TYPE_CHECKING:
    import tantivy

NAME = "words"
META = "meta.json"
"""Lists the segments of the last commit."""
_META_LOCK = ".tantivy-meta.lock"
_ANALYZER = "english"
_LITERATURE = "none"
_WRITER_HEAP_BYTES = 64_000_000
_VERSIONS = 1 << 56
_PIECE = 50_000


_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)
_CAPITALS = re.compile(r"(?<![A-Z] )(?<![^\W_])[A-Z]{2,3}(?![^\W_])(?! [A-Z]{2})")
_STOPS = "AN AND ARE AS AT BE BUT BY FOR IF IN IS IT NO NOT OF ON OR SUCH THE TO WAS"
_STOP_WORDS = frozenset(_STOPS.split())
_ABBREVIATION = "abbr"


def version_of(content_hash: str) -> int:
    """Return a 56-bit hash of the content hash, which fits tantivy's integers."""
    return int.from_bytes(hashlib.blake2b(content_hash.encode(), digest_size=7).digest(), "big")


def round_length(words: int) -> int:
    """Return the length of a passage for BM25 in tantivy and pg_textsearch. They store it in a byte.

    From 40 on, only every second number is one, from 56 on every fourth, and so on.
    """
    step = 1 << max(0, (words - 24).bit_length() - 4)
    return 24 + (words - 24) // step * step if words > 24 else words


class WordIndex:
    """The tantivy index of one library. Raises StorageError or LibraryDamaged for errors of tantivy."""

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        import tantivy

        self._folder = folder / NAME
        self._writer: tantivy.IndexWriter | None = None
        self._links: _LinkedCopy | None = None
        with translate_errors(self._folder):
            if create:
                self._folder.mkdir()
                schema = tantivy.SchemaBuilder()
                schema.add_text_field("body", tokenizer_name=_ANALYZER, index_option="freq")
                schema.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
                for name in ("document_id", "patient", "facets"):
                    schema.add_text_field(name, tokenizer_name="raw", index_option="basic")
                schema.add_integer_field("last_day", indexed=True, fast=True)
                schema.add_integer_field("version", fast=True)
                self._index = tantivy.Index(schema.build(), path=str(self._folder))
            else:
                # To read, tantivy creates a lock in the folder.
                lock = self._folder / _META_LOCK
                if not os.access(self._folder, os.W_OK) or (lock.exists() and not os.access(lock, os.W_OK)):
                    self._links = _LinkedCopy(self._folder)
                self._index = tantivy.Index.open(str(self._links.path if self._links else self._folder))
            self.loaded_opstamp = -1
            """The opstamp of the commit that searches read, -1 if a writer was committing while it was loaded."""
            self._index.register_tokenizer(_ANALYZER, _build_analyzer())
            self._index.config_reader("manual")
            self._schema = self._index.schema
            self.refresh()

    def refresh(self) -> None:
        """Move to the last commit of the writer."""
        with translate_errors(self._folder):
            if self._links is not None:
                self._links.update()
            # Where links are impossible, the copy may be older than the folder.
            source = self._folder if self._links is None else self._links.path
            before = self._read_opstamp(source)
            self._index.reload()
            self.loaded_opstamp = before if self._read_opstamp(source) == before else -1

    def close(self) -> None:
        """Wait for running merges. Uncommitted changes are discarded."""
        if self._writer is not None:
            with translate_errors(self._folder):
                try:
                    self._writer.wait_merging_threads()
                finally:
                    self._writer = None
        if self._links is not None:
            self._links.close()

    def count(self) -> int:
        with translate_errors(self._folder):
            return int(self._index.searcher().num_docs)

    def opstamp(self) -> int:
        """Return tantivy's opstamp of the last commit. It grows with every commit."""
        return self._read_opstamp(self._folder)

    def _read_opstamp(self, folder: Path) -> int:
        with translate_errors(self._folder):
            try:
                return int(json.loads((folder / META).read_bytes())["opstamp"])
            except (KeyError, TypeError, RecursionError) as error:
                raise LibraryDamaged(f"{self._folder / META} has no opstamp: {REPAIR}") from error

    def replace(self, document_ids: Sequence[str], passages: Iterable[StoredPassage]) -> int:
        """Remove these documents, add these passages, commit, and return the opstamp of the commit.

        After an error the index is unchanged, and the next call starts over.
        """
        import tantivy

        try:
            with translate_errors(self._folder):
                writer = self._make_writer()
                for document_id in document_ids:
                    writer.delete_documents_by_term("document_id", document_id)
                for stored in passages:
                    passage = stored.passage
                    values: dict[str, Any] = {
                        "body": cut_words(f"{passage.title}\n{passage.text}"),
                        "id": passage.id,
                        "document_id": passage.document_id,
                        "patient": _LITERATURE if passage.patient is None else f"p:{passage.patient}",
                        "version": version_of(stored.content_hash),
                        "facets": sorted(list_facets(passage.metadata)),
                    }
                    if passage.date is not None:
                        values["last_day"] = last_day(passage.date)
                    writer.add_document(tantivy.Document(**values))
                return self._commit()
        except BaseException:
            self._writer = None
            raise

    def rebuild(self, passages: Iterable[StoredPassage]) -> None:
        """Replace the whole index, so that no file holds words of deleted passages."""
        self._make_writer().delete_all_documents()
        self.replace([], passages)
        with translate_errors(self._folder):
            # The searcher of this process keeps the old files otherwise.
            self.refresh()
            self._make_writer().garbage_collect_files()

    def _make_writer(self) -> tantivy.IndexWriter:
        if self._writer is None:
            with translate_errors(self._folder):
                self._writer = self._index.writer(_WRITER_HEAP_BYTES, 1)
                # A killed writer leaves files of its unfinished commit, and the next commit would fail at their names.
                self._writer.garbage_collect_files()
                # tantivy gives a writer's first operation the number of the last commit. A merge that starts before the
                # next commit then loses this deletion in some segments, so the first one deletes nothing.
                self._writer.delete_documents_by_term("id", "")
        return self._writer

    def _commit(self) -> int:
        assert self._writer is not None
        return int(self._writer.commit())

    def search(
        self, query: str, limit: int, scope: Scope, within: Sequence[str] | None, *, patients: bool = True
    ) -> list[tuple[str, int, float]]:
        """Return (passage id, version, BM25 score) of the `limit` best hits, best first, ties in any order.

        A query of stop words has no hits. `patients` is False if no passage belongs to a patient's record.
        """
        tokens = list(dict.fromkeys(analyze_words(query)))
        if not tokens:
            return []
        with translate_errors(self._folder):
            searcher = self._index.searcher()
            # tantivy reserves memory for `limit` hits.
            limit = min(limit, searcher.num_docs + 1)
            hits = searcher.search(self._build_query(tokens, scope, within, patients), limit, count=False).hits
            entries = _read_entries(searcher, hits)
        return [(*entry, float(score)) for entry, (score, _) in zip(entries, hits, strict=True)]

    def entries(self, passage_ids: Sequence[str]) -> list[tuple[str, int]]:
        """Return (passage id, version) of every entry of these passages, in no particular order."""
        from tantivy import Query

        with translate_errors(self._folder):
            return self._search_entries(Query.term_set_query(self._schema, "id", list(passage_ids)))

    def all_entries(self) -> Iterator[list[tuple[str, int]]]:
        """Yield (passage id, version) of every entry, in pieces."""
        from tantivy import FieldType, Query

        pieces = self.count() // _PIECE + 1
        for piece in range(pieces):
            # Versions are hashes, so equal ranges contain about equally many entries.
            first, end = _VERSIONS * piece // pieces, _VERSIONS * (piece + 1) // pieces
            with translate_errors(self._folder):
                query = Query.range_query(self._schema, "version", FieldType.Integer, first, end - 1)
                yield self._search_entries(query)

    def _search_entries(self, query: tantivy.Query) -> list[tuple[str, int]]:
        searcher = self._index.searcher()
        # tantivy's own annotations lack the count.
        result: Any = searcher.search(query, 1)
        hits = searcher.search(query, max(result.count, 1), count=False).hits
        return _read_entries(searcher, hits)

    def _build_query(
        self, tokens: Sequence[str], scope: Scope, within: Sequence[str] | None, patients: bool
    ) -> tantivy.Query:
        from tantivy import FieldType, Occur, Query

        schema = self._schema
        words = [(Occur.Should, Query.term_query(schema, "body", token, "freq")) for token in tokens]
        filters = []
        if patients:
            allowed = [_LITERATURE] if scope.patient is None else [_LITERATURE, f"p:{scope.patient}"]
            filters.append(Query.term_set_query(schema, "patient", allowed))
        if scope.as_of is not None:
            until = last_day(scope.as_of)
            filters.append(Query.range_query(schema, "last_day", FieldType.Integer, upper_bound=until))
        if scope.since is not None:
            since = first_day(scope.since)
            filters.append(Query.range_query(schema, "last_day", FieldType.Integer, lower_bound=since))
        for names in scope.required_facets():
            filters.append(Query.term_set_query(schema, "facets", sorted(names)))
        if within is not None:
            filters.append(Query.term_set_query(schema, "id", list(within)))
        clauses = [(Occur.Must, Query.boolean_query(words))]
        clauses += [(Occur.Must, Query.const_score_query(condition, 0.0)) for condition in filters]
        if scope.hidden:
            clauses.append((Occur.MustNot, Query.term_set_query(schema, "document_id", sorted(scope.hidden))))
        if scope.without_retracted:
            clauses.append((Occur.MustNot, Query.term_set_query(schema, "facets", sorted(RETRACTION_FACETS))))
        if len(clauses) == 1:
            # Without filters tantivy can skip blocks that cannot contain the best hits.
            return Query.boolean_query(words)
        return Query.boolean_query(clauses)


class _LinkedCopy:
    """A temporary folder with links to the files of a read-only index, because tantivy creates a lock even to read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scratch = TemporaryFolder("epicrisis-words-")
        self.path = self._scratch.path
        self.update()

    def update(self) -> None:
        """Link new files. Copy them if links are impossible."""
        for path in self._folder.iterdir():
            link = self.path / path.name
            if path.suffix == ".lock" or link.is_symlink() or link.exists():
                continue
            try:
                link.symlink_to(path)
            except OSError:
                shutil.copyfile(path, link)

    def close(self) -> None:
        self._scratch.close()


def _read_entries(searcher: tantivy.Searcher, hits: Sequence[tuple[Any, tantivy.DocAddress]]) -> list[tuple[str, int]]:
    """Return the (passage id, version) of each hit."""
    addresses = [address for _, address in hits]
    versions = searcher.fast_field_values("version", addresses) if addresses else []
    entries = []
    for address, version in zip(addresses, versions, strict=True):
        entries.append((str(searcher.doc(address)["id"][0]), int(version or 0)))
    return entries


class _Analyzers(threading.local):
    """The analyzer of each thread. One that another thread is using raises RuntimeError."""

    def __init__(self) -> None:
        self.analyzer = _build_analyzer()


def _build_analyzer() -> tantivy.TextAnalyzer:
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple())
    for step in (Filter.remove_long(100), Filter.lowercase(), Filter.ascii_fold()):
        builder = builder.filter(step)
    return builder.filter(Filter.stopword("english")).filter(Filter.stemmer("english")).build()


@cache
def _load_analyzers() -> _Analyzers:
    return _Analyzers()


def analyze_words(text: str) -> list[str]:
    """Return the words of a text as the index has them: lower case, stemmed, without English stop words."""
    return _load_analyzers().analyzer.analyze(cut_words(text))


def cut_words(text: str) -> str:
    """Return a text with a blank between words that are written without one, or that would count as stop words.

    Runs of Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese letters become pairs of neighbouring letters. An
    abbreviation in capitals that is spelled as a stop word (NO, AS, IT, OR) becomes a word of its own, unless words in
    capitals are around it.
    """
    if text.isascii():
        return _CAPITALS.sub(_mark_abbreviation, text)
    return _CAPITALS.sub(_mark_abbreviation, _UNSPACED.sub(_cut_pairs, text))


def _cut_pairs(match: re.Match[str]) -> str:
    run = match[0]
    return f" {' '.join(run[start : start + 2] for start in range(max(1, len(run) - 1)))} "


def _mark_abbreviation(match: re.Match[str]) -> str:
    return f"{match[0]}{_ABBREVIATION}" if match[0] in _STOP_WORDS else match[0]
