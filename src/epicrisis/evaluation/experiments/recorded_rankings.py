"""Recorded rankings of the preflight experiment: how each ranker orders a question's passages, and which hold the key.

No chat model is asked. Each question is one JSON line, written immediately; a second run continues after it.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from pydantic import ConfigDict

from epicrisis.core.dates import first_day
from epicrisis.core.errors import InputError
from epicrisis.core.protocols import PassageStore, Reranker
from epicrisis.core.serialization import to_json
from epicrisis.core.types import CountUnit, Question, Ranking, Scope, SearchMode
from epicrisis.evaluation.experiments.passage_source import rank_candidates
from epicrisis.models.pair_models import load_reranker
from epicrisis.pipeline.components import open_library_search
from epicrisis.privacy.patient_data_policy import protect_patient_data
from epicrisis.retrieval.preflight import ScoredIds
from epicrisis.retrieval.rankings import choose_pool_size, parse_document_id, rerank, score_documents, select_places
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ModelsByRole, RerankSettings, Settings
from epicrisis.system.jsonl_store import JsonlStore, StoredLine, read_stored_lines
from epicrisis.system.local_only import strip_secrets

Guard: TypeAlias = Literal["none", "source-hidden", "before-source"]
"""What a question may not find (errata B15): nothing is hidden, its own documents are, or all documents that may be as
new as these."""
GUARDS: tuple[Guard, ...] = get_args(Guard)

SCHEMA_VERSION = 1
DEPTH = 64
"""Dense documents or passages that are ranked again; the same record serves smaller depths."""
CONTENT = "rankings"
"""The lines of the file, in error messages."""

Scores: TypeAlias = tuple[tuple[str, float], ...]
"""Passage ids with their scores, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRankings:
    """One question's rankings of the same dense hits, best first, and the ranking that an answer would be read from."""

    key: str
    """`Question.key`."""
    dataset: str
    dense: Scores
    bm25: Scores
    """The dense hits with a word of the question."""
    reranked: Scores | None
    read: tuple[str, ...]
    gold: tuple[str, ...]
    """Ids of the key documents."""
    held: tuple[str, ...]
    """Those of them that the library has and the guard does not hide."""
    count: CountUnit = "passages"
    """The unit of depths and places. The rankings are always of passages."""
    candidate_bm25: Scores | None = None
    """All dense hits by the BM25 of the notebooks, with their own statistics (errata C6). None in older files."""

    def at_depth(self, depth: int) -> QuestionRankings:
        """Return the record as if only `depth` dense documents or passages had been ranked again.

        Where documents are counted the rankings are of documents: ids are `<document id>#`, each in the place of its
        best passage, as `rankings_agree` compares them. Idempotent.
        """
        size = depth
        if self.count == "documents":
            size = choose_pool_size([parse_document_id(item[0]) for item in self.dense], depth)
        pool = {item[0] for item in self.dense[:size]}
        dense = self._in_units(_restrict(self.dense, pool))[:depth]
        ids = {item[0] for item in dense}
        bm25 = _restrict(self._in_units(_restrict(self.bm25, pool)), ids)
        rescored = None
        if self.reranked is not None:
            rescored = _restrict(self._in_units(_restrict(self.reranked, pool)), ids)
        by_candidates = None
        if self.candidate_bm25 is not None:
            by_candidates = _restrict(self._in_units(_restrict(self.candidate_bm25, pool)), ids)
        return replace(self, dense=dense, bm25=bm25, reranked=rescored, candidate_bm25=by_candidates)

    def _in_units(self, ranking: ScoredIds) -> Scores:
        if self.count == "passages":
            return tuple(ranking)
        return tuple((f"{name}#", score) for name, score in score_documents(ranking))

    def documents_read(self, k: int) -> list[str]:
        """Return the document at each of the first `k` places of the ranking that is read."""
        documents = list(map(parse_document_id, self.read))
        return (list(dict.fromkeys(documents)) if self.count == "documents" else documents)[:k]

    def passages_read(self, k: int) -> list[str]:
        """Return the ids of the passages that are read for `k` documents or passages."""
        if self.count == "passages":
            return list(self.read[:k])
        documents = list(map(parse_document_id, self.read))
        size = choose_pool_size(documents, k)
        return [self.read[place] for place in chain.from_iterable(select_places(documents[:size], k))]


def _restrict(ranking: ScoredIds, ids: set[str]) -> Scores:
    """Return the hits with these ids."""
    return tuple(hit for hit in ranking if hit[0] in ids)


class RankingLine(StoredLine):
    """A line of a file of recorded rankings: the fields of `QuestionRankings`, and no others."""

    model_config = ConfigDict(extra="forbid")

    key: str
    dataset: str
    dense: Scores
    bm25: Scores
    reranked: Scores | None
    read: tuple[str, ...]
    gold: tuple[str, ...]
    held: tuple[str, ...]
    count: CountUnit = "passages"
    candidate_bm25: Scores | None = None

    @property
    def identity(self) -> str:
        return self.key

    @property
    def rankings(self) -> QuestionRankings:
        """The rankings of the question."""
        return QuestionRankings(**{field.name: getattr(self, field.name) for field in fields(QuestionRankings)})


class RankingStore(JsonlStore[RankingLine]):
    """A file of recorded rankings. `recipe` is all that decides them: library, encoder, guard, depth."""

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        self.recorded: dict[str, QuestionRankings] = {}
        """By question key, in the order of the file."""
        super().__init__(path, RankingLine, {"schema_version": SCHEMA_VERSION, **to_json(recipe)}, content=CONTENT)

    def remember(self, line: RankingLine) -> None:
        self.recorded[line.key] = line.rankings

    def append_rankings(self, rankings: QuestionRankings) -> None:
        """Append the rankings of a question. They are on the disk when this returns. Raises StorageError."""
        values = {field.name: getattr(rankings, field.name) for field in fields(rankings)}
        self.append(RankingLine(recipe=self.recipe, **values))


def read_rankings(path: Path) -> tuple[Mapping[str, Any], tuple[QuestionRankings, ...]]:
    """Read the recipe and the rankings of a finished file. Raises InputError where it holds none."""
    if not path.is_file():
        raise InputError(f"{path} cannot be read (no such file): give a file of recorded rankings")
    lines = list(read_stored_lines(path, RankingLine, CONTENT))
    if not lines:
        raise InputError(f"{path} is empty: record some rankings first")
    by_question = {line.key: line.rankings for line in lines}
    return lines[0].recipe, tuple(by_question.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rankers:
    """The rankers of a study: `retriever` searches `store`, without a reranker of its own."""

    retriever: Retriever
    store: PassageStore
    by: SearchMode = "dense"
    """Search of the ranking that is read."""
    reranker: tuple[str, Reranker] | None = None
    depth: int = DEPTH
    k: int = 16
    """Number of documents or passages that are read."""
    count: CountUnit = "documents"


@contextmanager
def open_rankers(
    settings: Settings, library: Path | str, guard: Guard = "none", depth: int = DEPTH
) -> Iterator[tuple[Rankers, Mapping[str, Any]]]:
    """Open the library with the rankers of the settings, and yield them with the recipe of their rankings.

    Raises UserError for a missing library, another encoder, or a missing model or reranker.
    """
    preflight = settings.preflight.model_copy(update={"enabled": True})
    bare = settings.model_copy(update={"rerank": RerankSettings(), "strategy": "brief-context", "preflight": preflight})
    protect_patient_data(settings.model_copy(update={"models": ModelsByRole()}), library)
    name, variable = settings.rerank.name, settings.rerank.api_key_env
    with open_library_search(bare, library) as library_search:
        reranker = None
        if name is not None:
            reranker = name, load_reranker(name, settings.home, settings.threads, lambda: os.environ.get(variable))
        # Nothing on the unit of passages, as in files from before documents were counted.
        unit: dict[str, Any] = {}
        if settings.count_unit() == "documents":
            unit = {"count": "documents"} if settings.by == "dense" else {"count": "documents", "k": settings.k}
        recipe = {
            **settings.model_dump(include={"by", "rrf_k", "long_questions", "scope"}),
            **unit,
            "library": library_search.library.manifest.library_id,
            "passages": library_search.library.count()[1],
            "encoder": library_search.library.manifest.encoder_fingerprint,
            "fused": [other.manifest.library_id for other in library_search.others],
            "reranker": None if name is None else strip_secrets(name),
            "guard": guard,
            "depth": depth,
        }
        retriever, store, by = library_search.retriever, library_search.library, settings.by
        yield (
            Rankers(
                retriever=retriever,
                store=store,
                by=by,
                reranker=reranker,
                depth=depth,
                k=settings.k,
                count=settings.count_unit(),
            ),
            to_json(recipe),
        )


def record_rankings(
    questions: Iterable[Question],
    dataset: str,
    rankers: Rankers,
    file: RankingStore,
    guard: Guard = "none",
    scope: Callable[[Question], Scope] = lambda question: Scope(patient=question.patient),
) -> Iterator[tuple[Question, QuestionRankings | None]]:
    """Yield each question with its rankings, which are on the disk by then; recorded ones are not ranked again.

    `scope` returns the scope of a question without a guard. The rankings are None for a question without a dated
    document under the guard `before-source`.
    """
    for question in questions:
        rankings = file.recorded.get(question.key)
        if rankings is None:
            guarded_scope = guard_scope(question, guard, scope(question), rankers.store)
            if guarded_scope is not None:
                rankings = rank_question(question, dataset, rankers, guarded_scope)
                file.append_rankings(rankings)
        yield question, rankings


def rank_question(question: Question, dataset: str, rankers: Rankers, scope: Scope) -> QuestionRankings:
    """Rank the passages of one question by all rankers, under the scope."""
    by_documents = rankers.count == "documents"
    search = rankers.retriever.pool if by_documents else rankers.retriever.rank
    dense = search(question.text, rankers.depth, "dense", scope)
    words = rankers.store.search_words(question.text, len(dense.ids), scope, within=dense.ids) if dense.hits else ()
    ranking = dense
    if rankers.by != "dense":
        # At the depth of an answer: a deeper search would fuse other rankings.
        ranking = search(question.text, rankers.k if by_documents else rankers.depth, rankers.by, scope)
    rescored = _rerank(dense, question, rankers)
    if rescored is not None:
        ranking = rescored if rankers.by == "dense" else _rerank(ranking, question, rankers) or ranking
    return QuestionRankings(
        key=question.key,
        dataset=dataset,
        dense=_scores(dense),
        bm25=tuple((word.id, word.score) for word in words),
        reranked=None if rescored is None else _scores(rescored),
        read=ranking.ids,
        gold=question.gold_documents,
        held=_visible_gold(question, scope, rankers.store),
        count=rankers.count,
        candidate_bm25=tuple(rank_candidates(question, dense.passages)),
    )


def _rerank(ranking: Ranking, question: Question, rankers: Rankers) -> Ranking | None:
    if rankers.reranker is None:
        return None
    name, reranker = rankers.reranker
    return rerank(ranking, question.text, reranker, name, len(ranking.hits))


def _scores(ranking: Ranking) -> Scores:
    return tuple((hit.passage.id, hit.score) for hit in ranking.hits)


def _visible_gold(question: Question, scope: Scope, store: PassageStore) -> tuple[str, ...]:
    """Return the key documents that the library has and the scope shows, judged by their first passage."""
    present = store.content_hashes(question.gold_documents)
    names = dict.fromkeys(document for document in question.gold_documents if document in present)
    return tuple(passage.document_id for passage in store.fetch(list(map("{}#0".format, names)), scope))


def guard_scope(question: Question, guard: Guard, scope: Scope, store: PassageStore) -> Scope | None:
    """Return the question's scope under the guard, or None where the guard needs a date and no source document has one.

    `before-source` uses the earliest of several documents; a source dated `2015` hides all of 2015.
    """
    if guard == "none":
        return scope
    if guard == "source-hidden":
        return replace(scope, hidden=scope.hidden | set(question.gold_documents))
    sources = store.fetch([f"{name}#0" for name in _visible_gold(question, scope, store)], scope)
    days = [first_day(passage.date) for passage in sources if passage.date is not None]
    if not days:
        return None
    year, month, day = min(days) // 10_000, min(days) // 100 % 100, min(days) % 100
    before = datetime.date(year, month, day) - datetime.timedelta(days=1)
    return replace(scope, as_of=before.isoformat())
