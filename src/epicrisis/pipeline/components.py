"""Open the components named in the settings: libraries and their search, chat models in their layers, the reply cache.

Opening contacts no endpoint and loads no weights of a chat model.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

from epicrisis.core.answers import Notice
from epicrisis.core.errors import LibraryError, ModelMissing, SettingsError, StorageError
from epicrisis.core.prompts import hash_prompts
from epicrisis.core.protocols import ChatModel, Encoder, RewardModel, Verifier
from epicrisis.core.types import ChatCheck, Examples, Question, Scope
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.base.manifest import PRECOMPUTED, complete_manifest, read_manifest
from epicrisis.library.core.checked_store import CheckedStore
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import Roster, check_same_documents
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.models.model_pool import ModelPool
from epicrisis.privacy.patient_data_policy import protect_patient_data, reply_cache_path
from epicrisis.retrieval.id_rankings import SearchableStore
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ExampleSettings, ModelsByRole, RerankSettings, ScopeSettings, Settings
from epicrisis.system.local_only import local_path, strip_secrets
from epicrisis.system.remote_libraries import library_folder

if TYPE_CHECKING:
    from epicrisis.answering.confidence import ConfidenceCalibration
    from epicrisis.answering.structured_request import Sampling
    from epicrisis.models.chat.cache import ReplyCache

DEFAULT_ENCODER = "minilm"
PRECOMPUTED_ENCODER, PRECOMPUTED_DIMENSIONS = "medcpt", 768
"""The encoder of NCBI's vectors of PubMed."""
_MIN_EXAMPLE_DEPTH = 20
"""The fewest passages to search for the examples of one question."""
# fmt: off
_REPLY_SETTINGS = {
    "context_tokens", "temperature", "top_p", "max_reasoning_tokens", "json_schema", "option_logprobs", "extra",
}
"""Settings of a model that influence its replies."""
# fmt: on

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LibrarySearch:
    """A library opened for reading, and its search. Use as a context manager."""

    store: LibraryStore | CheckedStore
    """The library, or a store of another package."""
    retriever: Retriever
    others: tuple[LibraryStore, ...] = ()
    """Libraries of the same passages with other encoders."""
    literature: tuple[LibraryStore, ...] = ()
    """Libraries of literature searched together with the first."""
    rosters: tuple[Roster, ...] = ()
    remarks: tuple[str, ...] = ()
    """What a reader of a ranking should know of components that are not part of epicrisis."""

    @property
    def library(self) -> LibraryStore:
        """The library. Raises LibraryError for a store of another package, which has no files, patients or versions."""
        if isinstance(self.store, LibraryStore):
            return self.store
        raise LibraryError("this needs a library of epicrisis: leave out the setting store")

    @property
    def has_own_store(self) -> bool:
        """Whether the passages are in a store of another package."""
        return not isinstance(self.store, LibraryStore)

    def close(self) -> None:
        """Close the libraries. Idempotent. A store of another package stays open."""
        for library in (self.store, *self.others, *self.literature):
            if isinstance(library, LibraryStore):
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
        from epicrisis.library.core.passage_lookup import sample_passages
        from epicrisis.retrieval.solved_questions import choose_examples

        k = self.settings.k
        depth = max(_MIN_EXAMPLE_DEPTH, k * self.settings.rerank_times)
        while True:
            if self.settings.choose == "nearest":
                ranking = self.search.retriever.rank(question.text, depth, "dense", Scope())
                passages, notes = ranking.passages, ranking.notes
            else:
                key = f"{self.seed}/{question.key if self.settings.choose == 'random' else ''}"
                seed = int(sha256(key.encode()).hexdigest()[:8], 16)
                passages, notes = sample_passages(self.search.library, depth, seed, Scope()), ()
            examples = choose_examples(passages, question, k, self.settings.leak_similarity)
            n = len(examples.examples)
            if n == k or len(passages) < depth:
                remarks = list(notes)
                actual, expected = self.search.library.manifest.encoder_name, self.settings.encoder
                if expected is not None and expected != actual:
                    remarks.insert(0, f"their library was created with {actual}, not with {expected}")
                if n < k:
                    remarks.append(f"{n} of the {k} wanted: the library has no more")
                return replace(examples, notes=tuple(remarks))
            # Long questions have several passages, and some examples are excluded.
            depth *= 2


def open_library_search(
    settings: Settings,
    library: Path | str,
    search: bool = True,
    *,
    compares_texts: bool | None = None,
    pool: ModelPool | None = None,
) -> LibrarySearch:
    """Open a library for reading, with its search.

    No encoder is loaded to search by words only, unless `compares_texts`: sentences are selected, or rankings checked.
    None leaves that to the strategy of the settings. With `search` False nothing but the library is opened, for example
    to read whole records. Raises UserError: no such library, another encoder, no such model or reranker, or a library
    named twice.
    """
    path, pool = library_folder(library), pool or ModelPool()
    # Chat models are not opened here, so their addresses are not checked.
    settings = protect_patient_data(settings.model_copy(update={"models": ModelsByRole()}), path)
    if settings.store is not None:
        return _open_own_store(settings, settings.store, path, pool)
    if not search:
        whole_library = LibraryStore.open(path)
        retriever = Retriever(whole_library, None, sentences=find_sentences, analyze=analyze_words)
        return LibrarySearch(whole_library, retriever, rosters=(Roster(whole_library),))
    if compares_texts is None:
        from epicrisis.answering.strategy import find_strategy

        compares_texts = find_strategy(settings.strategy).compares_texts(settings.preflight.enabled)
    needs_encoder = settings.by != "bm25" or compares_texts
    reranker = pool.load_reranker(settings.rerank, settings)

    def open_one(path: Path, encoder_name: str | None = None) -> tuple[LibraryStore, Encoder | None]:
        if not needs_encoder:
            return LibraryStore.open(path), None
        encoder = pool.load_encoder(encoder_name or read_manifest(path).encoder_name, settings)
        return LibraryStore.open(path, encoder_fingerprint=encoder.fingerprint), encoder

    first, encoder = open_one(path, settings.encoder)
    others = [open_one(local_path(other)) for other in settings.fuse] if needs_encoder else []
    for store, _ in others:
        check_same_documents(first, store)
    papers = list(map(local_path, settings.beside))
    if len({path.absolute(), *map(Path.absolute, papers)}) <= len(papers):
        raise SettingsError("setting beside: it contains a library twice, or the main library: give other libraries")
    literature = list(map(open_one, papers))
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
        analyze=analyze_words,
        expands=settings.other_names,
        english_encoder=_name_english_encoder(first.manifest.encoder_name),
        keeps_first=settings.keep_first,
    )
    stores = tuple(map(itemgetter(0), literature))
    return LibrarySearch(
        first,
        retriever,
        tuple(map(itemgetter(0), others)),
        stores,
        rosters=tuple(map(Roster, (first, *stores))),
        remarks=_list_remarks(pool, settings),
    )


def _list_remarks(pool: ModelPool, settings: Settings) -> tuple[str, ...]:
    return tuple(notice.message for notice in pool.list_notices(settings, chat_models=False))


def _name_english_encoder(name: str) -> str:
    """Return the name of an encoder that reads English only, or an empty string."""
    from epicrisis.models.catalogue import reads_english_only

    return name if reads_english_only(name) else ""


def _open_own_store(settings: Settings, name: str, path: Path, pool: ModelPool) -> LibrarySearch:
    """Return the search in a store of another package. It says neither its encoder nor its patients."""
    if settings.fuse or settings.beside:
        raise SettingsError("setting store: it cannot be combined with fuse and beside: leave one of them out")
    store = CheckedStore(pool.load_store(name, path), name, path)
    encoder = None if settings.by == "bm25" else pool.load_encoder(settings.encoder or DEFAULT_ENCODER, settings)
    retriever = Retriever(
        store,
        encoder,
        settings.rrf_k,
        remedy=settings.long_questions,
        sentences=find_sentences,
        reranker=pool.load_reranker(settings.rerank, settings),
        rerank_depth=settings.rerank.depth,
        fusion_times=settings.fusion_times,
        analyze=analyze_words,
        expands=settings.other_names,
        english_encoder=_name_english_encoder(settings.encoder or DEFAULT_ENCODER),
        keeps_first=settings.keep_first,
    )
    return LibrarySearch(store, retriever, remarks=_list_remarks(pool, settings))


def open_examples(settings: Settings, pool: ModelPool | None = None) -> ExampleSearch | None:
    """Open the library of solved questions named in the settings, or return None without one.

    Raises UserError as `open_library_search` does.
    """
    examples = settings.examples
    if examples.library is None:
        return None
    rerank = RerankSettings()
    if examples.rerank is not None:
        rerank = RerankSettings(name=examples.rerank, depth=max(1, examples.k * examples.rerank_times))
    changes = {
        "by": "dense",
        "strategy": "rag",
        "encoder": None,
        "fuse": (),
        "beside": (),
        "rerank": rerank,
        "store": None,
    }
    search = open_library_search(settings.model_copy(update=changes), examples.library, pool=pool)
    return ExampleSearch(search, examples, settings.seed)


def read_rosters(*libraries: Path | str) -> tuple[Roster, ...]:
    """Return the patients of these libraries without opening their search. Folders without a library are skipped.

    Raises LibraryDamaged and StorageError.
    """
    rosters = []
    for path in map(local_path, libraries):
        if complete_manifest(path) is not None:
            with LibraryStore.open(path) as library:
                rosters.append(Roster(library))
    return tuple(rosters)


def open_models(settings: Settings, cache: ReplyCache | None, pool: ModelPool | None = None) -> dict[str, ChatModel]:
    """Return the chat model of each role, in its layers.

    Roles that differ only in sampling share a model, and all share the budget. Raises SettingsError for a budget in
    dollars with an unknown price.
    """
    from epicrisis.models.chat.loading import add_records

    pool = pool or ModelPool()
    models_by_limits: dict[ChatModel, ChatModel] = {}
    models: dict[str, ChatModel] = {}
    for role in settings.roles:
        limited = pool.load_chat_model(settings.model_for(role), settings)
        if limited not in models_by_limits:
            models_by_limits[limited] = add_records(limited, cache, settings.record, log_text=settings.log_text)
        models[role] = models_by_limits[limited]
    return models


def open_cached_models(
    settings: Settings, search: LibrarySearch | None, resources: ExitStack, pool: ModelPool | None = None
) -> tuple[dict[str, ChatModel], list[Notice]]:
    """Return the chat model of each role, and a notice if replies are not cached. `resources` closes the cache.

    Raises SettingsError and StorageError as `open_cache` and `open_models` do.
    """
    cache, note = open_cache(settings, search)
    if cache is not None:
        resources.callback(cache.close)
    return open_models(settings, cache, pool), [] if note is None else [Notice("cache", note)]


def read_sampling(settings: Settings) -> dict[str, Sampling]:
    """Return the sampling parameters of each role."""
    from epicrisis.answering.structured_request import Sampling

    sampling: dict[str, Sampling] = {}
    for role in settings.roles:
        model = settings.model_for(role)
        sampling[role] = Sampling(model.temperature, model.top_p, model.max_reasoning_tokens)
    return sampling


def open_cache(settings: Settings, search: LibrarySearch | None) -> tuple[ReplyCache | None, str | None]:
    """Return the reply cache, or None with a notice if the default cache cannot be opened.

    Raises SettingsError as `reply_cache_path` does, and StorageError if the settings require the cache.
    """
    replay = settings.cache.mode == "replay"
    if settings.cache.mode == "off":
        return None, None
    if search is not None and search.has_own_store:
        return None, "replies are not cached: the store of another package has no place for them"
    from epicrisis.models.chat.cache import ReplyCache

    path = reply_cache_path(settings, None if search is None else search.library.path)
    try:
        return ReplyCache(path, replay=replay), None
    except StorageError as error:
        if replay or settings.cache.path is not None:
            raise
        return None, f"replies are not cached: {error.message}"


def open_calibration(settings: Settings) -> tuple[ConfidenceCalibration | None, Sequence[Notice]]:
    """Return the calibration of the confidence; None, with a notice, for one of another strategy or model.

    Raises SettingsError for a file that is none.
    """
    path = settings.calibration
    if path is None:
        return None, ()
    from pydantic import TypeAdapter

    from epicrisis.answering.confidence import ConfidenceCalibration

    try:
        calibration = TypeAdapter(ConfidenceCalibration).validate_json(path.read_bytes())
    except (OSError, ValueError):
        raise SettingsError(
            f"setting calibration: {path} is no file of `epicrisis calibrate confidence`: name one, or leave it out"
        ) from None
    models = {strip_secrets(settings.model_for(role).endpoints[0].name) for role in settings.roles}
    if calibration.fits(settings.strategy, models, settings.citing):
        return calibration, ()
    message = (
        f"the confidence is not calibrated: {path.name} was fitted to answers of {calibration.strategy} by "
        f"{', '.join(calibration.models)} with citing = {calibration.citing}"
    )
    return None, (Notice("calibration", message),)


def load_ingest_encoder(
    settings: Settings, library: Path, precomputed: bool, pool: ModelPool | None = None
) -> tuple[Encoder, str]:
    """Return the encoder for additions to this library, and its name.

    For precomputed vectors of MedCPT, and for a library of them, the encoder need not be installed: a placeholder then
    refuses to encode text.
    """
    manifest = complete_manifest(library)
    name = settings.encoder
    if name is None:
        default = PRECOMPUTED_ENCODER if precomputed else DEFAULT_ENCODER
        name = manifest.encoder_name if manifest else default
    try:
        return (pool or ModelPool()).load_encoder(name, settings), name
    except ModelMissing:
        if manifest is not None:
            precomputed = manifest.encoder_fingerprint.startswith(PRECOMPUTED)
        if settings.encoder is not None or not precomputed:
            raise
        dimensions = manifest.dimensions if manifest else PRECOMPUTED_DIMENSIONS
        from epicrisis.models.encoders import PrecomputedEncoder

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


def describe_models(settings: Settings, roles: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return for each role what influences the replies of its model, for the recipe of a run."""
    models: dict[str, dict[str, Any]] = {}
    for role in roles:
        model = settings.model_for(role)
        # The first endpoint stands for all, so that others can be added to a run. Its address may contain secrets.
        name = strip_secrets(model.endpoints[0].name)
        models[role] = {**model.model_dump(include=_REPLY_SETTINGS), "name": name}
    return models


def describe_optional_prompts(settings: Settings, search: LibrarySearch | None = None) -> dict[str, str]:
    """Return the hashes of the prompts that only some settings use, by their key in a recipe.

    `sentences_by` is added where no encoder selects the numbered sentences.
    """
    from epicrisis.answering.strategy_context import CONFIDENCE_PROMPTS, NUMBERED_PROMPTS
    from epicrisis.answering.verifiers import PROMPTS as CHECK_PROMPTS

    hashes: dict[str, str] = {}
    if settings.citing == "numbers":
        hashes["numbered_prompts"] = hash_prompts(NUMBERED_PROMPTS)
        if search is not None and search.retriever.encoder is None:
            hashes["sentences_by"] = "words"
    if settings.map_confidence:
        hashes["confidence_prompts"] = hash_prompts(CONFIDENCE_PROMPTS)
    if settings.check in get_args(ChatCheck):
        hashes["check_prompts"] = hash_prompts(CHECK_PROMPTS)
    return hashes


def describe_library(library: LibraryStore) -> dict[str, Any]:
    """Return id and size of a library for the recipe of a run."""
    return {"id": library.manifest.library_id, "passages": library.count()[1]}


def describe_search(search: LibrarySearch) -> dict[str, Any]:
    """Return the libraries of a search for the recipe of a run."""
    if search.has_own_store:
        return {"store": type(search.store).__name__, "passages": search.store.count()[1], "fused": []}
    description: dict[str, Any] = describe_library(search.library)
    description["fused"] = list(map(describe_library, search.others))
    if search.literature:
        description["beside"] = list(map(describe_library, search.literature))
    return description


def describe_examples(library: LibraryStore) -> dict[str, Any]:
    """Return id, size and encoder of a library of solved questions for the recipe of a run."""
    return {**describe_library(library), "encoder": library.manifest.encoder_name}


def open_verifier(settings: Settings, pool: ModelPool | None = None) -> Verifier | None:
    """Return the verifier with the entailment model of the settings, or None unless the check of claims is `nli`.

    Raises UserError if the model is not installed or is none.
    """
    if settings.check != "nli" or settings.check_model is None:
        return None
    from epicrisis.answering.verifiers import NliVerifier
    from epicrisis.models.pair_models import load_nli

    return NliVerifier((pool or ModelPool()).load(load_nli, settings.check_model, settings), settings.check_model)


def open_reward_model(settings: Settings, pool: ModelPool | None = None) -> RewardModel | None:
    """Return the reward model of the settings, or None without one. Raises UserError if it is not installed."""
    from epicrisis.models.pair_models import load_reward_model

    name = settings.refine.reward_model
    return None if name is None else (pool or ModelPool()).load(load_reward_model, name, settings)


def list_notices(settings: Settings, roles: Sequence[str], remote: Sequence[str]) -> list[Notice]:
    """Return the notices for every question: of machines that may receive notes, and of small models in these roles."""
    from epicrisis.models.catalogue import get_measurement, is_demo

    notices: list[Notice] = []
    if remote:
        notices.append(Notice("remote-allowed", f"by --allow-remote patients' notes may reach {', '.join(remote)}"))
    for name in dict.fromkeys(settings.model_for(role).name for role in roles):
        if is_demo(name):
            message = (
                f"{name} is a small model for demonstration only: choose a better one with --model (`epicrisis "
                "models recommend` names some)"
            )
            notices.append(Notice("demo-model", message))
        elif measurement := get_measurement(name):
            notices.append(
                Notice("small-model", f"{name} {measurement}: compare each answer with its quoted sentences")
            )
    return notices
