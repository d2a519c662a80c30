"""What the settings name, opened: the library and its search, the chat models in their layers, the cache of replies.

Contacts nothing and loads no weights of a chat model. Knows no strategy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from epicrisis.corpus.chunking import find_sentences
from epicrisis.errors import ModelMissing, SettingsError, StorageError
from epicrisis.library.fusion_checks import check_same
from epicrisis.library.library import Library
from epicrisis.library.library_folder import REPLIES
from epicrisis.library.manifest import NAME as MANIFEST
from epicrisis.library.passage_lookup import at_random
from epicrisis.library.patients import Roster, check_patient, holds_patients, resolved_patient
from epicrisis.library.remote_consent import allow_remote, read_remote
from epicrisis.models.chat.layers.budget import Budget
from epicrisis.models.chat.layers.cache import ReplyCache
from epicrisis.models.chat.layers.stack import add_layers
from epicrisis.models.chat.loading import load_chat
from epicrisis.models.encoder import load_encoder
from epicrisis.models.precomputed_encoder import PrecomputedEncoder
from epicrisis.models.rerankers import load_reranker
from epicrisis.models.reward import load_reward_model
from epicrisis.privacy import local_path, set_local_only
from epicrisis.protocols import ChatModel, Encoder, RewardModel
from epicrisis.retrieval.examples import chosen
from epicrisis.retrieval.retriever import Retriever, Searched
from epicrisis.settings import ExampleSettings, ModelsByRole, ModelSettings, RerankSettings, ScopeSettings, Settings
from epicrisis.types import Examples, Passage, Question, Scope

DEFAULT_ENCODER = "minilm"
_EXAMPLES_AT_LEAST = 20
"""Passages looked at for the examples of one question."""
_DRAWN_ALIKE = {"temperature": 0.0, "top_p": 1.0, "max_reasoning_tokens": 0}
"""These are each request's own."""
SLOTS = 1
"""Calls that an embedded model takes at once; more would wait inside it."""
PRECOMPUTED_ENCODER, PRECOMPUTED_DIMENSIONS = "medcpt", 768
"""The encoder of NCBI's vectors of PubMed."""


def protect_patient_data(settings: Settings, *libraries: Path | str | None) -> Settings:
    """The settings in force with these libraries and those that the settings name; whoever opens one asks here first.

    Where a library holds patients' notes, `local_only` is on, in this process too, unless the library's folder says
    that remote was allowed; `allow_remote` says so there for good. Raises SettingsError where the settings name another
    machine that is not allowed, and what `holds_patients` and `read_remote` raise.
    """
    return _held(settings, _with_notes(settings, libraries))


def list_remote_hosts(settings: Settings, *libraries: Path | str | None) -> list[str]:
    """The other machines that patients' notes of these libraries may reach, by these settings."""
    if settings.local_only or not _with_notes(settings, libraries):
        return []
    return sorted({host for _, host in settings.remote_hosts()})


def _with_notes(settings: Settings, libraries: Iterable[Path | str | None]) -> list[Path]:
    named = (*libraries, *settings.fuse, *settings.beside, settings.examples.library)
    folders = dict.fromkeys(local_path(each) for each in named if each is not None)
    return [folder for folder in folders if holds_patients(folder)]


def protect_run_folder(settings: Settings, folder: Path, patients: bool) -> Settings:
    """The same for what reads answers out of a run's folder, or one of its pairs; `patients`: some are about records.

    It is said and written down for that folder: a library that let its notes be answered elsewhere has not said that
    others may read the answers.
    """
    return _held(settings, [folder] if patients else [])


def _held(settings: Settings, folders: Sequence[Path]) -> Settings:
    hosts = dict(settings.remote_hosts())
    for folder in folders:
        if settings.allow_remote or (hosts and not settings.local_only and read_remote(folder).allowed):
            allow_remote(folder, hosts.values())
    held = [folder for folder in folders if not read_remote(folder).allowed]
    if held and hosts and not settings.local_only:
        key, host = next(iter(hosts.items()))
        raise SettingsError(
            f"setting {key}: {held[0]} holds patients' notes and {host} is not this machine: name something on this "
            "machine, or give --allow-remote once for this folder"
        )
    if not (settings.local_only or held):
        return settings
    set_local_only(True)
    return settings.model_copy(update={"local_only": True})


def open_models(settings: Settings, cache: ReplyCache | None) -> dict[str, ChatModel]:
    """The chat model of each role in its layers; roles that differ only in how they draw share one, all share the
    budget. Raises SettingsError where that is in dollars and a price is not known."""
    budget = Budget(settings.budget)
    made: list[tuple[ModelSettings, ChatModel]] = []
    models: dict[str, ChatModel] = {}
    for role in settings.roles:
        wanted = settings.model_for(role).model_copy(update=_DRAWN_ALIKE)
        model = next((known for same, known in made if same == wanted), None)
        if model is None:
            bare = load_chat(wanted, settings.home, settings.threads)
            limits = wanted if wanted.is_endpoint else wanted.model_copy(update={"concurrency": SLOTS})
            model = add_layers(
                bare, limits, cache=cache, budget=budget, record=settings.record, log_text=settings.log_text
            )
            made.append((wanted, model))
        models[role] = model
    return models


def open_cache(settings: Settings, opened: LibrarySearch | None) -> tuple[ReplyCache | None, str | None]:
    """The cache of replies, and what a reader must know where there is none although the settings have it on.

    It lies in the library, so that what quotes documents stays with them; without a library, among the models. Raises
    SettingsError where patients' notes would leave their library.
    """
    replay = settings.cache.mode == "replay"
    if settings.cache.mode == "off":
        return None, None
    inside = None if opened is None else opened.library.path / REPLIES
    path = settings.cache.path or inside or settings.home / REPLIES
    if opened is not None and path != inside and holds_patients(opened.library.path):
        raise SettingsError(
            "the library holds patients' notes, so replies are kept inside it or not at all: leave cache.path out, or "
            "give --cache off"
        )
    try:
        return ReplyCache(path, replay=replay), None
    except StorageError as error:
        if replay or settings.cache.path is not None:
            raise
        return None, f"replies are not kept: {error.message}"


@dataclass(frozen=True, slots=True)
class LibrarySearch:
    """A library open for reading and its search, with whatever else that needs. Use as a context manager."""

    library: Library
    retriever: Retriever
    others: tuple[Library, ...] = ()
    """Of the same passages, by other encoders."""
    beside: tuple[Library, ...] = ()
    """Of literature, searched along."""
    rosters: tuple[Roster, ...] = ()
    """Whose records the libraries hold."""

    def check(self, question: Question) -> None:
        """Raises InputError where the question does not fit the patients here; see `check_patient`."""
        check_patient(self.rosters, question)

    def patient_of(self, patient: str | None) -> str | None:
        """Return the id of the patient with this id or record number; see `resolved_patient`."""
        return resolved_patient(self.rosters, patient)

    def close(self) -> None:
        """Closes the libraries. Idempotent."""
        for library in (self.library, *self.others, *self.beside):
            library.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_library_search(settings: Settings, library: Path | str, search: bool = True) -> LibrarySearch:
    """The library, opened for reading, and its search. No encoder is loaded where only words are searched; nothing but
    the library is opened where nothing is searched (`search` False), as where records are read whole.

    Raises UserError: no such library, another encoder, no such model or reranker, one library named twice.
    """
    path = local_path(library)
    # Chat models are not opened here: whoever opens them is held to the same.
    protect_patient_data(settings.model_copy(update={"models": ModelsByRole()}), path)
    if not search:
        opened = Library.open(path)
        return LibrarySearch(opened, Retriever(opened, None), rosters=_rosters([opened]))
    needs_encoder = settings.by != "bm25" or (settings.strategy == "brief-context" and settings.preflight.enabled)
    reranker = None
    if settings.rerank.name is not None:
        loaded = load_reranker(settings.rerank.name, settings.home, settings.threads, _key(settings.rerank.api_key_env))
        reranker = (settings.rerank.name, loaded)
    first, encoder = _searched(settings, path, settings.encoder) if needs_encoder else (Library.open(path), None)
    also = [_searched(settings, local_path(other), None) for other in settings.fuse] if needs_encoder else []
    for store, _ in also:
        check_same(first, store)
    beside = _beside(settings, path, needs_encoder)
    retriever = Retriever(
        first,
        encoder,
        settings.rrf_k,
        also=[Searched(store, other) for store, other in also],
        beside=[Searched(store, other, store.path.name) for store, other in beside],
        remedy=settings.long_questions,
        sentences=find_sentences,
        reranker=reranker,
        rerank_depth=settings.rerank.depth,
        fusion_times=settings.fusion_times,
    )
    literature = tuple(store for store, _ in beside)
    rosters = _rosters([first, *literature])
    return LibrarySearch(first, retriever, tuple(store for store, _ in also), literature, rosters)


def read_rosters(*libraries: Path | str) -> tuple[Roster, ...]:
    """Whose records these hold, where nothing else is read of them; a folder that is no library has none.

    Raises LibraryDamaged, StorageError.
    """
    found = []
    for path in map(local_path, libraries):
        if (path / MANIFEST).exists():
            with Library.open(path) as library:
                found.append(Roster(library))
    return tuple(found)


def _rosters(libraries: Iterable[Library]) -> tuple[Roster, ...]:
    return tuple(map(Roster, libraries))


def _beside(settings: Settings, first: Path, needs_encoder: bool) -> list[tuple[Library, Encoder | None]]:
    """The libraries of literature, each with its own encoder."""
    paths = [local_path(other) for other in settings.beside]
    if len({first.absolute(), *(path.absolute() for path in paths)}) <= len(paths):
        raise SettingsError("setting beside: it names a library twice, or the one that is asked: name others")
    return [_searched(settings, path, None) if needs_encoder else (Library.open(path), None) for path in paths]


def _searched(settings: Settings, path: Path, encoder_name: str | None) -> tuple[Library, Encoder]:
    from epicrisis.library.manifest import read_manifest

    encoder = load_encoder(encoder_name or read_manifest(path).encoder_name, settings.home, settings.threads)
    return Library.open(path, encoder_fingerprint=encoder.fingerprint), encoder


def describe_library(library: Library) -> dict[str, Any]:
    """A library as a run's recipe tells of it: which one, and how large."""
    return {"id": library.manifest.library_id, "passages": library.count()[1]}


def describe_examples(library: Library) -> dict[str, Any]:
    """The same of a library of solved questions, and what finds them."""
    return {**describe_library(library), "encoder": library.manifest.encoder_name}


@dataclass(frozen=True, slots=True)
class ExampleSearch:
    """A library of solved questions, and which of them are shown."""

    opened: LibrarySearch
    wanted: ExampleSettings
    seed: int

    def find(self, question: Question) -> Examples:
        """Those to show, best first: as many as are wanted, or all there are. Raises InputError where the library holds
        anything else."""
        depth = max(_EXAMPLES_AT_LEAST, self.wanted.k * self.wanted.rerank_times)
        while True:
            passages, notes = self._passages(question, depth)
            found = chosen(passages, question, self.wanted.k, self.wanted.leak_similarity)
            n = len(found.examples)
            if n == self.wanted.k or len(passages) < depth:
                fewer = [f"{n} of the {self.wanted.k} wanted: the library has no more"] if n < self.wanted.k else []
                return replace(found, notes=(*self.notes, *notes, *fewer))
            # Long questions have several passages, and some are left out.
            depth *= 2

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of the library, whatever is asked."""
        made, wanted = self.opened.library.manifest.encoder_name, self.wanted.encoder
        other = wanted is not None and wanted != made
        return (f"their library was made with {made}, not with {wanted}",) if other else ()

    def _passages(self, question: Question, depth: int) -> tuple[tuple[Passage, ...], tuple[str, ...]]:
        """So many, best first, and what the search says of it."""
        if self.wanted.choose == "nearest":
            ranking = self.opened.retriever.rank(question.text, depth, "dense", Scope())
            return ranking.passages, ranking.notes
        drawn = f"{self.seed}/{question.key if self.wanted.choose == 'random' else ''}"
        return at_random(self.opened.library, depth, int(sha256(drawn.encode()).hexdigest()[:8], 16), Scope()), ()


def open_examples(settings: Settings) -> ExampleSearch | None:
    """The library of solved questions that the settings name, opened for reading; `None` where they name none.

    Raises UserError as `open_retriever` does.
    """
    wanted = settings.examples
    if wanted.library is None:
        return None
    rerank = RerankSettings()
    if wanted.rerank is not None:
        rerank = RerankSettings(name=wanted.rerank, depth=max(1, wanted.k * wanted.rerank_times))
    changes = {"by": "dense", "strategy": "rag", "encoder": None, "fuse": (), "beside": (), "rerank": rerank}
    return ExampleSearch(
        open_library_search(settings.model_copy(update=changes), wanted.library), wanted, settings.seed
    )


def open_reward(settings: Settings) -> RewardModel | None:
    """The trained reward model that the settings name; `None` where they name none. Raises UserError."""
    name = settings.refine.reward_model
    return None if name is None else load_reward_model(name, settings.home, settings.threads)


def _key(variable: str) -> Callable[[], str | None]:
    return lambda: os.environ.get(variable)


def load_ingest_encoder(settings: Settings, library: Path, ready_made: bool) -> tuple[Encoder, str]:
    """The encoder that additions to this library need, and its name.

    For ready-made vectors of MedCPT, and for a library of them, it need not be installed: then a stand-in that refuses
    to encode anything.
    """
    from epicrisis.library.manifest import PRECOMPUTED, complete_manifest

    made = complete_manifest(library)
    name = settings.encoder or (made.encoder_name if made else PRECOMPUTED_ENCODER if ready_made else DEFAULT_ENCODER)
    try:
        return load_encoder(name, settings.home, settings.threads), name
    except ModelMissing:
        precomputed = made.encoder_fingerprint.startswith(PRECOMPUTED) if made else ready_made
        if settings.encoder is not None or not precomputed:
            raise
        dimensions = made.dimensions if made else PRECOMPUTED_DIMENSIONS
        return PrecomputedEncoder(f"{PRECOMPUTED}{name}", name, dimensions), name


def build_scope(settings: ScopeSettings, patient: str | None = None, question: Question | None = None) -> Scope:
    """What a search may see by the settings, for that patient; with `hide_gold` not the question's own documents."""
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
