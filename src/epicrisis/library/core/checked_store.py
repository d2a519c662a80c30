"""Read a store of another package, and trust none of its passages to be in the scope.

store = CheckedStore(OurStore(path), "our-store", path)
hits = store.search_words("gout", 8, Scope())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from epicrisis.core.errors import LibraryError
from epicrisis.core.protocols import PassageStore, ScoredId, StoredDocument, Vectors
from epicrisis.core.types import Passage, Scope


@dataclass(frozen=True, slots=True)
class CheckedStore:
    """A PassageStore in front of another. Reading passages raises LibraryError for one outside the scope."""

    inner: PassageStore
    name: str
    """The name of the store in the settings."""
    path: Path
    """The place that the store was opened with."""

    def add(self, documents: Sequence[StoredDocument]) -> None:
        """Add documents, see PassageStore."""
        self.inner.add(documents)

    def delete(self, document_ids: Sequence[str]) -> None:
        """Delete documents, see PassageStore."""
        self.inner.delete(document_ids)

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[ScoredId, ...]:
        """Search by vector, see PassageStore. The passages are checked once they are fetched."""
        return self.inner.search_vectors(vector, k, scope)

    def search_words(
        self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None
    ) -> tuple[ScoredId, ...]:
        """Search by words, see PassageStore."""
        return self.inner.search_words(query, k, scope, within)

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        """Fetch passages by id, see PassageStore."""
        passages = self.inner.fetch(passage_ids, scope)
        self._check(passages, scope)
        return passages

    def fetch_record(self, scope: Scope) -> tuple[Passage, ...]:
        """Return the record of the scope's patient, see PassageStore."""
        passages = self.inner.fetch_record(scope)
        self._check(passages, scope)
        return passages

    def content_hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the hash of each existing document, see PassageStore."""
        return self.inner.content_hashes(document_ids)

    def count(self) -> tuple[int, int]:
        """Return the numbers of documents and passages."""
        return self.inner.count()

    def _check(self, passages: Sequence[Passage], scope: Scope) -> None:
        if not all(scope.admits(passage) for passage in passages):
            raise LibraryError(
                f"the store {self.name} returned a passage outside the scope of the question, so nothing of it was "
                "read: check the package with epicrisis.testing.stores.check_store"
            )
