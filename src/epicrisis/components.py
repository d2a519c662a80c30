"""Open the components named in the settings: libraries and their search, chat models in their layers, the reply cache.

Opening contacts no endpoint and loads no weights of a chat model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from epicrisis.corpus.chunking import find_sentences
from epicrisis.errors import ModelMissing, SettingsError, StorageError
from epicrisis.library.library import Library
from epicrisis.library.manifest import NAME as MANIFEST
from epicrisis.library.passage_lookup import sample_passages
from epicrisis.library.patient_check import check_patient, resolve_patient
from epicrisis.library.patients import Roster, check_same_documents
from epicrisis.models.chat.layers.budget import Budget
from epicrisis.models.chat.layers.cache import ReplyCache
from epicrisis.models.chat.layers.stack import add_layers
from epicrisis.models.chat.loading import load_chat
from epicrisis.models.encoder import load_encoder
from epicrisis.models.precomputed_encoder import PrecomputedEncoder
from epicrisis.models.rerankers import load_reranker
from epicrisis.models.reward import load_reward_model
from epicrisis.patient_data_policy import protect_patient_data, reply_cache_path
from epicrisis.privacy import local_path
from epicrisis.protocols import ChatModel, Encoder, Reranker, RewardModel
from epicrisis.retrieval.examples import choose_examples
from epicrisis.retrieval.retriever import Retriever, SearchableStore
from epicrisis.settings import ExampleSettings, ModelsByRole, ModelSettings, RerankSettings, ScopeSettings, Settings
from epicrisis.types import Examples, Passage, Question, Scope

DEFAULT_ENCODER = "minilm"
EMBEDDED_CONCURRENCY = 1
"""Concurrent calls of an embedded model. More would wait inside it."""
PRECOMPUTED_ENCODER, PRECOMPUTED_DIMENSIONS = "medcpt", 768
"""The encoder of NCBI's vectors of PubMed."""
_MIN_EXAMPLE_DEPTH = 20
"""The fewest passages to search for the examples of one question."""
_REQUEST_PARAMETERS = {"temperature": 0.0, "top_p": 1.0, "max_reasoning_tokens": 0}
"""Parameters of single requests. Roles that differ only in them share a model."""


@dataclass(frozen=True, slots=True)
class LibrarySearch:
    """A library opened for reading, and its search. Use as a context manager."""

    library: Library
    retriever: Retriever
    others: tuple[Library, ...] = ()
    """Libraries of the same passages with other encoders."""
    literature: tuple[Library, ...] = ()
    """Libraries of literature searched together with the first."""
    rosters: tuple[Roster, ...] = ()
    """The patients of the libraries."""

    def check_patient(self, question: Question) -> None:
        """Raise InputError if the question does not fit the patients of the libraries; see `check_patient`."""
        check_patient(self.rosters, question)

    def resolve_patient(self, patient: str | None) -> str | None:
        """Return the id of the patient with this id or record number; see `resolve_patient`."""
        return resolve_patient(self.rosters, patient)

    def close(self) -> None:
        """Close the libraries. Idempotent."""
        for library in (self.library, *self.others, *self.literature):
            library.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ExampleSearch:
    """A library of solved questions, and the selection of examples from it."""

    search: LibrarySearch
    settings: ExampleSettings
    seed: int

    def find(self, question: Question) -> Examples:
        """Return `settings.k` examples, best first, or all if there are fewer.

        Raises InputError if the library contains other documents.
        """
        k = self.settings.k
        depth = max(_MIN_EXAMPLE_DEPTH, k * self.settings.rerank_times)
        while True:
            passages, notes = self._search(question, depth)
            examples = choose_examples(passages, question, k, self.settings.leak_similarity)
            n = len(examples.examples)
            if n == k or len(passages) < depth:
                fewer = [f"{n} of the {k} wanted: the library has no more"] if n < k else []
                return replace(examples, notes=(*self.notes, *notes, *fewer))
            # Long questions have several passages, and some examples are excluded.
            depth *= 2

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the library for every question."""
        actual, expected = self.search.library.manifest.encoder_name, self.settings.encoder
        differs = expected is not None and expected != actual
        return (f"their library was made with {actual}, not with {expected}",) if differs else ()

    def _search(self, question: Question, depth: int) -> tuple[tuple[Passage, ...], tuple[str, ...]]:
        """Return `depth` passages, best first, and the notes of the search."""
        if self.settings.choose == "nearest":
            ranking = self.search.retriever.rank(question.text, depth, "dense", Scope())
            return ranking.passages, ranking.notes
        key = f"{self.seed}/{question.key if self.settings.choose == 'random' else ''}"
        return sample_passages(self.search.library, depth, int(sha256(key.encode()).hexdigest()[:8], 16), Scope()), ()


def open_library_search(settings: Settings, library: Path | str, search: bool = True) -> LibrarySearch:
    """Open a library for reading, with its search.

    No encoder is loaded to search by words only. With `search` False nothing but the library is opened, for example to
    read whole records. Raises UserError: no such library, another encoder, no such model or reranker, or a library
    named twice.
    """
    path = local_path(library)
    # Chat models are not opened here, so their addresses are not checked.
    protect_patient_data(settings.model_copy(update={"models": ModelsByRole()}), path)
    if not search:
        opened = Library.open(path)
        return LibrarySearch(opened, Retriever(opened, None), rosters=(Roster(opened),))
    needs_encoder = settings.by != "bm25" or (settings.strategy == "brief-context" and settings.preflight.enabled)
    reranker = _load_reranker(settings)
    first, encoder = (
        _open_with_encoder(settings, path, settings.encoder) if needs_encoder else (Library.open(path), None)
    )
    others = [_open_with_encoder(settings, local_path(other)) for other in settings.fuse] if needs_encoder else []
    for store, _ in others:
        check_same_documents(first, store)
    literature = _open_literature(settings, path, needs_encoder)
    retriever = Retriever(
        first,
        encoder,
        settings.rrf_k,
        also=[SearchableStore(store, other) for store, other in others],
        beside=[SearchableStore(store, other, store.path.name) for store, other in literature],
        remedy=settings.long_questions,
        sentences=find_sentences,
        reranker=reranker,
        rerank_depth=settings.rerank.depth,
        fusion_times=settings.fusion_times,
    )
    papers = tuple(store for store, _ in literature)
    rosters = tuple(map(Roster, (first, *papers)))
    return LibrarySearch(first, retriever, tuple(store for store, _ in others), papers, rosters)


def open_examples(settings: Settings) -> ExampleSearch | None:
    """Open the library of solved questions named in the settings, or return None without one.

    Raises UserError as `open_library_search` does.
    """
    examples = settings.examples
    if examples.library is None:
        return None
    rerank = RerankSettings()
    if examples.rerank is not None:
        rerank = RerankSettings(name=examples.rerank, depth=max(1, examples.k * examples.rerank_times))
    changes = {"by": "dense", "strategy": "rag", "encoder": None, "fuse": (), "beside": (), "rerank": rerank}
    search = open_library_search(settings.model_copy(update=changes), examples.library)
    return ExampleSearch(search, examples, settings.seed)


def read_rosters(*libraries: Path | str) -> tuple[Roster, ...]:
    """Return the patients of these libraries without opening their search. Folders without a library are skipped.

    Raises LibraryDamaged and StorageError.
    """
    rosters = []
    for path in map(local_path, libraries):
        if (path / MANIFEST).exists():
            with Library.open(path) as library:
                rosters.append(Roster(library))
    return tuple(rosters)


def open_models(settings: Settings, cache: ReplyCache | None) -> dict[str, ChatModel]:
    """Return the chat model of each role, in its layers.

    Roles that differ only in sampling share a model, and all share the budget. Raises SettingsError for a budget in
    dollars with an unknown price.
    """
    budget = Budget(settings.budget)
    opened: list[tuple[ModelSettings, ChatModel]] = []
    models: dict[str, ChatModel] = {}
    for role in settings.roles:
        key_settings = settings.model_for(role).model_copy(update=_REQUEST_PARAMETERS)
        model = next((model for other, model in opened if other == key_settings), None)
        if model is None:
            limits = key_settings
            if not limits.is_endpoint:
                limits = limits.model_copy(update={"concurrency": EMBEDDED_CONCURRENCY})
            model = add_layers(
                load_chat(key_settings, settings.home, settings.threads),
                limits,
                cache=cache,
                budget=budget,
                record=settings.record,
                log_text=settings.log_text,
            )
            opened.append((key_settings, model))
        models[role] = model
    return models


def open_cache(settings: Settings, search: LibrarySearch | None) -> tuple[ReplyCache | None, str | None]:
    """Return the reply cache, or None with a notice if the default cache cannot be opened.

    Raises SettingsError as `reply_cache_path` does, and StorageError if the settings require the cache.
    """
    replay = settings.cache.mode == "replay"
    if settings.cache.mode == "off":
        return None, None
    path = reply_cache_path(settings, None if search is None else search.library.path)
    try:
        return ReplyCache(path, replay=replay), None
    except StorageError as error:
        if replay or settings.cache.path is not None:
            raise
        return None, f"replies are not cached: {error.message}"


def open_reward(settings: Settings) -> RewardModel | None:
    """Load the trained reward model named in the settings, or return None. Raises UserError."""
    name = settings.refine.reward_model
    return None if name is None else load_reward_model(name, settings.home, settings.threads)


def load_ingest_encoder(settings: Settings, library: Path, precomputed: bool) -> tuple[Encoder, str]:
    """Return the encoder for additions to this library, and its name.

    For precomputed vectors of MedCPT, and for a library of them, the encoder need not be installed: a placeholder then
    refuses to encode text.
    """
    from epicrisis.library.manifest import PRECOMPUTED, complete_manifest

    manifest = complete_manifest(library)
    name = settings.encoder
    if name is None:
        default = PRECOMPUTED_ENCODER if precomputed else DEFAULT_ENCODER
        name = manifest.encoder_name if manifest else default
    try:
        return load_encoder(name, settings.home, settings.threads), name
    except ModelMissing:
        if manifest is not None:
            precomputed = manifest.encoder_fingerprint.startswith(PRECOMPUTED)
        if settings.encoder is not None or not precomputed:
            raise
        dimensions = manifest.dimensions if manifest else PRECOMPUTED_DIMENSIONS
        return PrecomputedEncoder(f"{PRECOMPUTED}{name}", name, dimensions), name


def build_scope(settings: ScopeSettings, patient: str | None = None, question: Question | None = None) -> Scope:
    """Return the scope of the settings for this patient, or for the patient of the question.

    With `hide_gold` it hides the gold documents of the question.
    """
    gold = question.gold_documents if question is not None and settings.hide_gold else ()
    return Scope(
        patient=patient if question is None else question.patient,
        as_of=settings.as_of,
        hidden=frozenset((*settings.hide, *gold)),
        since=settings.since,
        publication_types=frozenset(settings.types),
        journals=frozenset(settings.journals),
        without_retracted="retracted" in settings.without and "retracted" not in settings.include,
    )


def describe_library(library: Library) -> dict[str, Any]:
    """Return id and size of a library for the recipe of a run."""
    return {"id": library.manifest.library_id, "passages": library.count()[1]}


def describe_examples(library: Library) -> dict[str, Any]:
    """Return id, size and encoder of a library of solved questions for the recipe of a run."""
    return {**describe_library(library), "encoder": library.manifest.encoder_name}


def _load_reranker(settings: Settings) -> tuple[str, Reranker] | None:
    rerank = settings.rerank
    if rerank.name is None:
        return None
    return rerank.name, load_reranker(
        rerank.name, settings.home, settings.threads, lambda: os.environ.get(rerank.api_key_env)
    )


def _open_literature(settings: Settings, first: Path, needs_encoder: bool) -> list[tuple[Library, Encoder | None]]:
    """Open the libraries of literature, each with its own encoder."""
    paths = list(map(local_path, settings.beside))
    if len({first.absolute(), *map(Path.absolute, paths)}) <= len(paths):
        raise SettingsError("setting beside: it names a library twice, or the main one: name others")
    opened: list[tuple[Library, Encoder | None]] = []
    for path in paths:
        opened.append(_open_with_encoder(settings, path) if needs_encoder else (Library.open(path), None))
    return opened


def _open_with_encoder(settings: Settings, path: Path, encoder_name: str | None = None) -> tuple[Library, Encoder]:
    from epicrisis.library.manifest import read_manifest

    encoder = load_encoder(encoder_name or read_manifest(path).encoder_name, settings.home, settings.threads)
    return Library.open(path, encoder_fingerprint=encoder.fingerprint), encoder
