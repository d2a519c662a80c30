"""What the preflight experiment records of a question: how each ranker orders the passages, and which hold the key.

No chat model is asked. One JSON line a question, written as it happens; run again it goes on from there. Knows no
verdict and no label.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from epicrisis.components import guarded, open_retriever
from epicrisis.dates import first_day
from epicrisis.errors import InputError
from epicrisis.evaluation.runs.jsonl_store import Line, alone, append_line, read_lines
from epicrisis.evaluation.runs.recipe_differences import changed
from epicrisis.models.rerankers import load_reranker
from epicrisis.privacy import without_secrets
from epicrisis.protocols import PassageStore, Reranker
from epicrisis.retrieval.document_ranking import by_document, document_of, places_of, pool_size
from epicrisis.retrieval.ranking_signals import Scored
from epicrisis.retrieval.rerank import reranked
from epicrisis.retrieval.retriever import Retriever
from epicrisis.serialization import to_json
from epicrisis.settings import Models, RerankSettings, Settings
from epicrisis.types import CountUnit, Question, Ranking, Scope, SearchMode

Guard: TypeAlias = Literal["none", "source-hidden", "before-source"]
"""What a question may not find (errata B15): nothing is hidden, its own documents are, or whatever may have appeared on
their date or later."""
GUARDS: tuple[Guard, ...] = get_args(Guard)

SCHEMA_VERSION = 1
DEPTH = 64
"""Dense documents or passages that are ranked anew; a smaller depth can be looked at in the same record."""


@dataclass(frozen=True, slots=True)
class QuestionRankings:
    """One question's rankings of the same dense hits, best first, and the ranking that an answer would be read from."""

    key: str
    """The question's."""
    dataset: str
    dense: tuple[tuple[str, float], ...]
    bm25: tuple[tuple[str, float], ...]
    """Those of the dense hits that share a word with the question."""
    reranked: tuple[tuple[str, float], ...] | None
    read: tuple[str, ...]
    gold: tuple[str, ...]
    """Ids of the key documents."""
    held: tuple[str, ...]
    """Those of them that the library holds and the guard does not hide."""
    count: CountUnit = "passages"
    """What depths and places count. The rankings are of passages in any case."""

    def at_depth(self, depth: int) -> QuestionRankings:
        """Return the record as if only so many dense documents or passages had been ranked anew.

        Where documents are counted, the rankings are theirs then: ids are `<document id>#`, each in the place of its
        best passage, as `rankings_agree` compares them. Idempotent.
        """
        size = depth
        if self.count == "documents":
            size = pool_size([document_of(id_) for id_, _ in self.dense], depth)
        kept = {id_ for id_, _ in self.dense[:size]}
        lists = [
            None if ranking is None else self._counted([hit for hit in ranking if hit[0] in kept])
            for ranking in (self.dense, self.bm25, self.reranked)
        ]
        dense = (lists[0] or ())[:depth]
        names = {id_ for id_, _ in dense}
        bm25, again = (None if each is None else tuple(hit for hit in each if hit[0] in names) for each in lists[1:])
        return replace(self, dense=dense, bm25=bm25 or (), reranked=again)

    def _counted(self, ranking: Scored) -> tuple[tuple[str, float], ...]:
        if self.count == "passages":
            return tuple(ranking)
        return tuple((f"{name}#", score) for name, score in by_document(ranking))

    def documents_read(self, k: int) -> list[str]:
        """Return the document at each of the first `k` places of the ranking that is read."""
        documents = [document_of(passage) for passage in self.read]
        return (list(dict.fromkeys(documents)) if self.count == "documents" else documents)[:k]

    def passages_read(self, k: int) -> list[str]:
        """Return the ids of the passages that are read for `k` documents or passages."""
        if self.count == "passages":
            return list(self.read[:k])
        pool = self.read[: pool_size([document_of(passage) for passage in self.read], k)]
        groups = places_of([document_of(passage) for passage in pool], k)
        return [pool[place] for places in groups for place in places]


@dataclass(frozen=True, slots=True)
class Rankers:
    """What ranks: `retriever` searches `store` and has no reranker of its own; `by` makes the ranking that is read."""

    retriever: Retriever
    store: PassageStore
    by: SearchMode = "dense"
    reranker: tuple[str, Reranker] | None = None
    depth: int = DEPTH
    k: int = 16
    """Documents or passages that are read."""
    count: CountUnit = "documents"


@contextmanager
def open_rankers(
    settings: Settings, library: Path | str, guard: Guard = "none", depth: int = DEPTH
) -> Iterator[tuple[Rankers, Mapping[str, Any]]]:
    """The library, open, with what ranks it by the settings, and the recipe of such rankings.

    Raises UserError: no such library, another encoder, no such model or reranker.
    """
    preflight = settings.preflight.model_copy(update={"enabled": True})
    bare = settings.model_copy(update={"rerank": RerankSettings(), "strategy": "brief-context", "preflight": preflight})
    guarded(settings.model_copy(update={"models": Models()}), library)
    name, variable = settings.rerank.name, settings.rerank.api_key_env
    with open_retriever(bare, library) as opened:
        reranker = None
        if name is not None:
            reranker = name, load_reranker(name, settings.home, settings.threads, lambda: os.environ.get(variable))
        recipe = {
            **settings.model_dump(include={"by", "rrf_k", "long_questions", "scope"}),
            **_counted(settings),
            "library": opened.library.manifest.library_id,
            "passages": opened.library.count()[1],
            "encoder": opened.library.manifest.encoder_fingerprint,
            "fused": [other.manifest.library_id for other in opened.others],
            "reranker": None if name is None else without_secrets(name),
            "guard": guard,
            "depth": depth,
        }
        made = Rankers(opened.retriever, opened.library, settings.by, reranker, depth, settings.k, settings.counted())
        yield made, to_json(recipe)


def _counted(settings: Settings) -> dict[str, Any]:
    """Return what the recipe says of counting: nothing by passages, as in files made before documents were counted."""
    if settings.counted() == "passages":
        return {}
    return {"count": "documents"} if settings.by == "dense" else {"count": "documents", "k": settings.k}


class RankingFile:
    """An append-only JSONL file of recorded rankings, this process's to add to while the object lives.

    `recipe` is all that decides the rankings: library, encoder, guard, depth. Raises InputError where the file holds
    something else, rankings of another recipe, or where another process is at work on it.
    """

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        self._path = path
        self._lock = alone(path)
        self._recipe = {"schema_version": SCHEMA_VERSION, **to_json(recipe)}
        self.recorded: dict[str, QuestionRankings] = {}
        """By question key, in the order of the file."""
        for line in read_lines(path):
            made, each = _parse(path, line)
            if made != self._recipe:
                raise InputError(
                    f"{path} holds rankings made otherwise ({changed(made, self._recipe)}): name another file with -o"
                )
            self.recorded[each.key] = each

    def append(self, each: QuestionRankings) -> None:
        """Durable when it returns. Raises StorageError where the disk does not take it."""
        append_line(self._path, {"recipe": self._recipe, **to_json(each)})
        self.recorded[each.key] = each


def _parse(path: Path, line: Line) -> tuple[dict[str, Any], QuestionRankings]:
    try:
        value = dict(line.value)
        recipe = dict(value.pop("recipe"))
        pairs = {
            name: None if value[name] is None else tuple((str(id_), float(score)) for id_, score in value[name])
            for name in ("dense", "bm25", "reranked")
        }
        lists = {name: tuple(value[name]) for name in ("read", "gold", "held")}
        return recipe, QuestionRankings(**{**value, **pairs, **lists})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}, line {line.number}, is no recorded ranking: name another file with -o") from None


def read_rankings(path: Path) -> tuple[Mapping[str, Any], tuple[QuestionRankings, ...]]:
    """The recipe and the rankings of a finished file. Raises InputError where it is none, or is empty."""
    if not path.is_file():
        raise InputError(f"{path} cannot be read (no such file): name a file of recorded rankings")
    parsed = [_parse(path, line) for line in read_lines(path)]
    if not parsed:
        raise InputError(f"{path} is empty: record some rankings first")
    return parsed[0][0], tuple({each.key: each for _, each in parsed}.values())


def record_rankings(
    questions: Iterable[Question],
    dataset: str,
    rankers: Rankers,
    file: RankingFile,
    guard: Guard = "none",
    scope: Callable[[Question], Scope] = lambda question: Scope(patient=question.patient),
) -> Iterator[tuple[Question, QuestionRankings | None]]:
    """Each question with its rankings, recorded before they are yielded; those recorded already are not ranked again.

    `scope` is what a question may see without a guard. `None`: under the guard `before-source` a question none of whose
    documents has a date.
    """
    for question in questions:
        if (known := file.recorded.get(question.key)) is not None:
            yield question, known
            continue
        seen = guard_scope(question, guard, scope(question), rankers.store)
        if seen is None:
            yield question, None
            continue
        each = rank_question(question, dataset, rankers, seen)
        file.append(each)
        yield question, each


def rank_question(question: Question, dataset: str, rankers: Rankers, scope: Scope) -> QuestionRankings:
    """One question, ranked by everything there is, under the scope."""
    by_documents = rankers.count == "documents"
    search = rankers.retriever.pool if by_documents else rankers.retriever.rank
    dense = search(question.text, rankers.depth, "dense", scope)
    words = rankers.store.search_words(question.text, len(dense.ids), scope, within=dense.ids) if dense.hits else ()
    read = dense
    if rankers.by != "dense":
        # As it is read: a deeper search would fuse other rankings.
        read = search(question.text, rankers.k if by_documents else rankers.depth, rankers.by, scope)
    again = _again(dense, question, rankers)
    if again is not None:
        read = again if rankers.by == "dense" else _again(read, question, rankers) or read
    return QuestionRankings(
        key=question.key,
        dataset=dataset,
        dense=_scored(dense),
        bm25=tuple((hit.passage.id, hit.score) for hit in words),
        reranked=None if again is None else _scored(again),
        read=read.ids,
        gold=question.gold_documents,
        held=_held(question, scope, rankers.store),
        count=rankers.count,
    )


def _again(ranking: Ranking, question: Question, rankers: Rankers) -> Ranking | None:
    if rankers.reranker is None:
        return None
    name, reranker = rankers.reranker
    return reranked(ranking, question.text, reranker, name, len(ranking.hits))


def _scored(ranking: Ranking) -> tuple[tuple[str, float], ...]:
    return tuple((hit.passage.id, hit.score) for hit in ranking.hits)


def _held(question: Question, scope: Scope, store: PassageStore) -> tuple[str, ...]:
    """The key documents that are there and may be seen: their first passage stands for all of them."""
    known = store.content_hashes(question.gold_documents)
    return tuple(name for name in dict.fromkeys(question.gold_documents) if name in known and _seen(name, scope, store))


def _seen(name: str, scope: Scope, store: PassageStore) -> bool:
    try:
        store.fetch([f"{name}#0"], scope)
    except InputError:
        return False
    return True


def guard_scope(question: Question, guard: Guard, scope: Scope, store: PassageStore) -> Scope | None:
    """What the question may see under the guard; `None` where a date is needed and no source document has one.

    `before-source` goes by the earliest of several documents; a source dated `2015` hides all of 2015.
    """
    if guard == "none":
        return scope
    if guard == "source-hidden":
        return replace(scope, hidden=scope.hidden | set(question.gold_documents))
    sources = store.fetch([f"{name}#0" for name in _held(question, scope, store)], scope)
    days = [first_day(passage.date) for passage in sources if passage.date is not None]
    if not days:
        return None
    year, month, day = min(days) // 10_000, min(days) // 100 % 100, min(days) % 100
    before = datetime.date(year, month, day) - datetime.timedelta(days=1)
    return replace(scope, as_of=before.isoformat())
