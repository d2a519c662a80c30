"""The Python API: open a library once, then add, search and ask.

with epicrisis.Library.open("~/lib", model="http://127.0.0.1:8000/v1#qwen") as library:
    answer = library.ask("Does aspirin prevent pre-eclampsia?", ["yes", "no"])

`ask` and `stream` answer one question in one call.
"""

from __future__ import annotations

import asyncio
import string
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, get_args

from epicrisis.core.answers import Answer, Answered, Event, Notice
from epicrisis.core.errors import InputError, LibraryError
from epicrisis.core.protocols import ChatModel, Encoder, PassageStore, Reranker
from epicrisis.core.types import Document, Question, Ranking, SearchMode, SentenceRanking, SplitterName
from epicrisis.corpus.base.chunking import DEFAULT_OVERLAP
from epicrisis.library.base.manifest import complete_manifest, read_manifest
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import PatientRecord, Roster, delete_documents, holds_patients
from epicrisis.models.model_pool import ModelPool, OwnKind
from epicrisis.pipeline.components import LibrarySearch, load_ingest_encoder, open_library_search
from epicrisis.pipeline.passage_search import search_passages, search_sentences
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.privacy.record_access import open_access
from epicrisis.settings.configuration import (
    check_settings,
    choose_strategy,
    explain_unknown_variables,
    load_settings,
    merge_tables,
)
from epicrisis.settings.settings import Settings
from epicrisis.system.local_only import local_path
from epicrisis.system.remote_libraries import library_folder

if TYPE_CHECKING:
    from epicrisis.library.core.document_list import DocumentEntry
    from epicrisis.library.write.ingest_batches import IngestProgress, IngestReport

_OBJECT_KEYS: Mapping[str, OwnKind] = {"encoder": "encoder", "store": "store"}
"""Settings that may be objects of the program."""
_METHODS: Mapping[OwnKind, str] = {
    "chat model": "complete",
    "encoder": "encode_passages",
    "reranker": "score",
    "store": "search_vectors",
}
"""A method that an object of each kind has."""
T = TypeVar("T")
Options: TypeAlias = Sequence[str] | Mapping[str, str] | None
"""The options of a question: their texts, their texts by letter, or one text with commas (`yes,no`)."""


class Library:
    """An open library: add to it, search it and ask it, without loading anything twice.

    Use `open` or `create`, and close it (`with`, `async with` or `close`). Every method has a twin for asynchronous
    code, with the prefix `a`. The others also work where an event loop runs, as in a notebook. Thread-safe.

    Keyword arguments are the settings of `epicrisis settings`, with tables as dictionaries (`votes={"n": 20}`), for all
    calls of a library, or for one. In addition, `model`, `encoder`, `reranker` and `store` take a name or an
    object with the protocol of `epicrisis.core.protocols`. A chat model is closed with the library.
    """

    def __init__(self, path: Path, pool: ModelPool, flags: Mapping[str, Any]) -> None:
        """Use `open` or `create` instead."""
        self.path = path
        self._pool = pool
        self._flags = flags
        self._searches: list[tuple[Settings, LibrarySearch]] = []
        self._pipelines: list[tuple[Settings, Pipeline]] = []
        self._has_patients = holds_patients(path)
        self._lock = threading.RLock()
        self._loop = _EventLoopThread()
        self._is_closed = False
        self._finalizer = weakref.finalize(self, _EventLoopThread.stop, self._loop)

    @classmethod
    def open(cls, path: Path | str, **settings: Any) -> Self:
        """Open an existing library. Models are loaded at their first use.

        Raises LibraryMissing, LibraryDamaged, and SettingsError for wrong settings.
        """
        pool = ModelPool(remembers=True)
        flags = _read_flags(settings, pool)
        folder = library_folder(path).absolute()
        if load_settings(flags).store is None:
            read_manifest(folder)
        return cls(folder, pool, flags)

    @classmethod
    def create(
        cls,
        path: Path | str,
        *,
        splitter: SplitterName | None = None,
        overlap: int = DEFAULT_OVERLAP,
        chunk_tokens: int | None = None,
        **settings: Any,
    ) -> Self:
        """Create an empty library and open it. `splitter`, `overlap` and `chunk_tokens` say how documents are cut.

        Raises LibraryError if there is one already, InputError for impossible numbers, ModelMissing and StorageError.
        """
        from epicrisis.library.write.ingest import open_or_create

        _check_number(overlap, "overlap")
        if chunk_tokens is not None:
            _check_number(chunk_tokens, "chunk_tokens")
        if splitter is not None and splitter not in get_args(SplitterName):
            raise InputError(f"no splitter is called {splitter!r}: {', '.join(get_args(SplitterName))}")
        pool = ModelPool(remembers=True)
        flags = _read_flags(settings, pool)
        folder = library_folder(path).absolute()
        if complete_manifest(folder) is not None:
            raise LibraryError(f"{folder} is a library already: use Library.open")
        encoder, name = load_ingest_encoder(load_settings(flags), folder, precomputed=False, pool=pool)
        open_or_create(folder, encoder, name, overlap, splitter, chunk_tokens=chunk_tokens).close()
        return cls(folder, pool, flags)

    def add(
        self,
        *sources: Path | str | Document,
        format: str | None = None,
        replace: bool = False,
        literature: bool = False,
        columns: Mapping[str, Any] | None = None,
        time_format: str = "",
        keep_boilerplate: bool = False,
        keep_superseded: bool = False,
        collection: str = "",
        on_progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        """Add files, folders and documents. Return the added documents, and the skipped ones with reasons.

        The arguments are the options of `epicrisis library add`; `columns` maps roles to columns of a CSV file, such as
        `{"patient": "subject_id", "time": ["charttime"]}`. Raises InputError and LibraryBusy.
        """
        from epicrisis.corpus.base.note_times import check_time_format, leave_out_no_date
        from epicrisis.corpus.base.removal_log import RemovalLog
        from epicrisis.corpus.records.note_documents import NoteCleaning
        from epicrisis.corpus.records.note_tables import read_columns
        from epicrisis.pipeline.additions import AddOptions, add_files

        if not sources:
            raise InputError("nothing to add: give a file, a folder or a Document")
        paths: list[Path] = []
        documents: list[Document] = []
        for source in sources:
            if isinstance(source, Document):
                documents.append(leave_out_no_date(_read_document(source)))
            elif isinstance(source, Iterable) and not isinstance(source, str | Path):
                raise InputError(f"{type(source).__name__} is no file, folder or Document: write add(*sources)")
            else:
                paths.append(local_path(source))
        if time_format:
            _check_text(time_format, "time_format")
            check_time_format(time_format)
        options = AddOptions(
            format=format,
            replace=replace,
            literature=literature,
            columns=read_columns(columns),
            collection=collection,
            cleaning=NoteCleaning(keep_boilerplate, time_format, RemovalLog(keep_texts=True), keep_superseded),
        )
        with self._lock:
            self._check_open()
            settings = load_settings(self._flags)
            encoder = None
            if format is None:
                encoder = load_ingest_encoder(settings, self.path, precomputed=False, pool=self._pool)
            report = add_files(
                settings, self.path, paths, options, on_progress, documents=documents, encoder=encoder, pool=self._pool
            )
            if not self._has_patients and holds_patients(self.path):
                # What is open was allowed to contact other machines.
                self._has_patients = True
                self._close_searches()
        return report

    def search(
        self,
        query: str,
        *,
        patient: str | int | None = None,
        k: int | None = None,
        by: SearchMode | None = None,
        since: str | int | None = None,
        **settings: Any,
    ) -> Ranking:
        """Return the passages nearest to a query, best first. `k` is their number, and `by` the kind of search.

        `patient` is an id or a record number. Raises InputError for an empty query or an unknown patient.
        """
        _check_text(query, "the query")
        keywords = _name_settings(settings, k=k, by=by, since=since)
        checked = self._read_settings({"strategy": "rag", **keywords})
        access, id_ = open_access(checked, self.path), _read_optional(patient, "patient")
        return search_passages(checked, self._open_search(checked), query, id_, access)

    def evidence(
        self,
        question: str,
        *,
        patient: str | int | None = None,
        sentences: int | None = None,
        by: SearchMode | None = None,
        since: str | int | None = None,
        **settings: Any,
    ) -> SentenceRanking:
        """Return the sentences that bear on a question, best first. `sentences` is their number. No model writes.

        The errors are those of `search`.
        """
        _check_text(question, "the question")
        keywords = _name_settings(settings, sentences=sentences, by=by, since=since)
        checked = self._read_settings({**keywords, "strategy": "evidence"})
        access = open_access(checked, self.path)
        return search_sentences(
            checked, self._open_search(checked), question, _read_optional(patient, "patient"), access
        )

    def ask(
        self,
        question: str | Question,
        options: Options = None,
        *,
        patient: str | int | None = None,
        model: str | Path | ChatModel | None = None,
        strategy: str | None = None,
        k: int | None = None,
        by: SearchMode | None = None,
        since: str | int | None = None,
        **settings: Any,
    ) -> Answer:
        """Return the answer to a question. Without a model and a strategy it is the best sentences of the library.

        A failure of a model is an answer in state `failed`. Raises UserError for what only the user can correct.
        """
        keywords = _name_settings(settings, model=model, strategy=strategy, k=k, by=by, since=since)
        future = self._submit(self._answer(question, options, patient, keywords))
        try:
            return future.result()
        except BaseException:
            # Ctrl-C stops the calls in flight.
            future.cancel()
            raise

    def documents(self) -> tuple[DocumentEntry, ...]:
        """Return the documents of the library without their text. Notes of patients are not listed: see `patients`."""
        from epicrisis.library.core.document_list import DocumentFilter, list_documents

        with self._open_store() as store:
            return list_documents(store, DocumentFilter(), limit=sys.maxsize).documents

    def __len__(self) -> int:
        """Return the number of documents, notes included."""
        with self._open_store() as store:
            return store.count()[0]

    def __bool__(self) -> bool:
        """Return True: an empty library is one, too."""
        return True

    def remove(self, *ids: str) -> None:
        """Delete documents by their ids. With a patient's last note, name and record numbers are deleted as well.

        Raises InputError for ids that are not in the library, and deletes the others. Raises LibraryBusy.
        """
        names = [_read_text(id_, "an id") for id_ in ids]
        with self._lock, self._open_store(write=True) as store:
            existing = delete_documents(store, names)
        if unknown := [id_ for id_ in names if id_ not in existing]:
            raise InputError(f"not in the library: {', '.join(unknown)}; `documents()` lists the ids")

    def _open_store(self, *, write: bool = False) -> LibraryStore:
        """Open the library's own store. Raises LibraryError for a store of another package."""
        self._check_open()
        if load_settings(self._flags).store is not None:
            raise LibraryError("a store of another package lists neither documents nor patients: ask about one by id")
        return LibraryStore.open(self.path, write=write)

    def patients(self) -> tuple[PatientRecord, ...]:
        """Return the patients of the library, without text of their notes. Empty for literature."""
        with self._open_store() as store:
            return tuple(Roster(store).patients().values())

    @classmethod
    async def aopen(cls, path: Path | str, **settings: Any) -> Self:
        """Open an existing library, as `open` does."""
        return await asyncio.to_thread(cls.open, path, **settings)

    @classmethod
    async def acreate(cls, path: Path | str, **arguments: Any) -> Self:
        """Create a library and open it, as `create` does."""
        return await asyncio.to_thread(cls.create, path, **arguments)

    async def aadd(self, *sources: Path | str | Document, **arguments: Any) -> IngestReport:
        """Add files, folders and documents, as `add` does."""
        return await asyncio.to_thread(self.add, *sources, **arguments)

    async def asearch(self, query: str, *, patient: str | int | None = None, **settings: Any) -> Ranking:
        """Return the passages nearest to a query, as `search` does."""
        return await asyncio.to_thread(self.search, query, patient=patient, **settings)

    async def aevidence(self, question: str, *, patient: str | int | None = None, **settings: Any) -> SentenceRanking:
        """Return the sentences that bear on a question, as `evidence` does."""
        return await asyncio.to_thread(self.evidence, question, patient=patient, **settings)

    async def aask(
        self,
        question: str | Question,
        options: Options = None,
        *,
        patient: str | int | None = None,
        model: str | Path | ChatModel | None = None,
        strategy: str | None = None,
        k: int | None = None,
        by: SearchMode | None = None,
        since: str | int | None = None,
        **settings: Any,
    ) -> Answer:
        """Return the answer to a question, as `ask` does. Cancelling the task stops the calls in flight."""
        keywords = _name_settings(settings, model=model, strategy=strategy, k=k, by=by, since=since)
        return await asyncio.wrap_future(self._submit(self._answer(question, options, patient, keywords)))

    async def apatients(self) -> tuple[PatientRecord, ...]:
        """Return the patients of the library, as `patients` does."""
        return await asyncio.to_thread(self.patients)

    def close(self) -> None:
        """Close the library and stop the models. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._close_searches()
            self._loop.submit(self._pool.aclose()).result()
            self._finalizer()

    async def aclose(self) -> None:
        """Close the library, as `close` does."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<Library {self.path}{state}>"

    async def _answer(
        self,
        question: str | Question,
        options: Options,
        patient: str | int | None,
        flags: Mapping[str, Any],
    ) -> Answer:
        full_question = _build_question(question, options, patient)
        checked, notices = choose_strategy(check_settings(self._read_settings(flags)))
        pipeline = await asyncio.to_thread(self._open_pipeline, checked, notices)
        return await pipeline.answer(full_question)

    def _read_settings(self, flags: Mapping[str, Any]) -> Settings:
        self._check_open()
        return load_settings(merge_tables(self._flags, _read_flags(flags, self._pool)))

    def _open_search(self, settings: Settings) -> LibrarySearch:
        """Return the search with these settings, which is opened once."""
        with self._lock:
            self._check_open()
            for key, search in self._searches:
                if key == settings:
                    return search
            compares = settings.strategy == "evidence"
            search = open_library_search(settings, self.path, compares_texts=compares, pool=self._pool)
            self._searches.append((settings, search))
            return search

    def _open_pipeline(self, settings: Settings, notices: Sequence[Notice]) -> Pipeline:
        """Return the pipeline with these settings, which is opened once."""
        with self._lock:
            self._check_open()
            for key, pipeline in self._pipelines:
                if key == settings:
                    return pipeline
            # One handle on the log is enough for all pipelines.
            logged = settings.model_copy(update={"log": None}) if self._pipelines else settings
            pipeline = Pipeline.open(logged, self.path, notices=notices, pool=self._pool)
            self._pipelines.append((settings, pipeline))
            return pipeline

    def _close_searches(self) -> None:
        """Close what is open of the library. The models stay."""
        for _, search in self._searches:
            search.close()
        for _, pipeline in self._pipelines:
            pipeline.resources.close()
        self._searches, self._pipelines = [], []

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._is_closed:
            work.close()
        self._check_open()
        return self._loop.submit(work)

    def _check_open(self) -> None:
        if self._is_closed:
            raise LibraryError(f"{self.path} is closed: open it again with Library.open")


class _EventLoopThread:
    """An event loop in a thread of its own: models belong to one loop, and a notebook's is running already."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="epicrisis", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work, and return its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def stop(self) -> None:
        """Stop the loop. What still runs is not finished."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def stream(
    library: Path | str | None,
    question: str | Question,
    options: Options = None,
    *,
    patient: str | int | None = None,
    model: str | Path | ChatModel | None = None,
    strategy: str | None = None,
    k: int | None = None,
    by: SearchMode | None = None,
    since: str | int | None = None,
    **settings: Any,
) -> AsyncIterator[Event]:
    """Yield the events of one question; the last one is `Answered`.

    Without a model and a strategy, the answer is the best sentences of the library (`choose_strategy`). `patient` is
    the patient whose record is read. The settings are those of `Library`. Raises InputError if the question names
    another patient.
    """
    full_question = _build_question(question, options, patient)
    pool = ModelPool()
    keywords = _name_settings(settings, model=model, strategy=strategy, k=k, by=by, since=since)
    checked, notices = choose_strategy(check_settings(load_settings(_read_flags(keywords, pool))))
    async with Pipeline.open(checked, library, notices=notices, pool=pool) as pipeline:
        async for event in pipeline.events(full_question):
            yield event


def ask(
    library: Path | str | None,
    question: str | Question,
    options: Options = None,
    *,
    patient: str | int | None = None,
    model: str | Path | ChatModel | None = None,
    strategy: str | None = None,
    k: int | None = None,
    by: SearchMode | None = None,
    since: str | int | None = None,
    **settings: Any,
) -> Answer:
    """Return the answer to one question, with the arguments of `stream`. For several questions, open a `Library`."""

    keywords = _name_settings(settings, model=model, strategy=strategy, k=k, by=by, since=since)

    async def last_answer() -> Answer:
        async for event in stream(library, question, options, patient=patient, **keywords):
            if isinstance(event, Answered):
                return event.answer
        raise RuntimeError("a pipeline's last event is its answer")

    loop = _EventLoopThread()
    try:
        return loop.submit(last_answer()).result()
    finally:
        loop.stop()


def _name_settings(settings: Mapping[str, Any], **keywords: Any) -> dict[str, Any]:
    """Return the settings with those that have an argument of their own.

    `since` and `as_of` belong to the table `scope`.
    """
    given = {**settings, **{name: value for name, value in keywords.items() if value is not None}}
    dates = {name: _read_optional(given.pop(name), name) for name in ("since", "as_of") if name in given}
    return merge_tables(given, {"scope": dates}) if dates else given


def _read_flags(settings: Mapping[str, Any], pool: ModelPool) -> dict[str, Any]:
    """Return keyword arguments as settings. Objects go to the pool, under the name that the settings then have."""
    for line in explain_unknown_variables():
        warnings.warn(line, stacklevel=2)
    flags = dict(settings)
    model, reranker = flags.pop("model", None), flags.pop("reranker", None)
    if model is not None:
        flags = merge_tables(flags, {"models": {"writer": {"name": _register(pool, "chat model", model)}}})
    if reranker is not None:
        flags = merge_tables(flags, {"rerank": {"name": _register(pool, "reranker", reranker)}})
    for key, kind in _OBJECT_KEYS.items():
        if flags.get(key) is not None:
            flags[key] = _register(pool, kind, flags[key])
    return flags


def _register(pool: ModelPool, kind: OwnKind, model: str | Path | ChatModel | Encoder | Reranker | PassageStore) -> str:
    """Return the name of a model. An object is added to the pool under its own name, its fingerprint or its class."""
    if isinstance(model, str | Path):
        return str(model)
    method = _METHODS[kind]
    if isinstance(model, type) or not callable(getattr(model, method, None)):
        wrong = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise InputError(f"the {kind} is {wrong}: give its name, or an object with the method `{method}`")
    name = getattr(model, "name", None) or getattr(model, "fingerprint", None)
    if not isinstance(name, str):
        name = type(model).__name__
    pool.add(kind, name, model)
    return name


def _read_text(value: Any, name: str) -> str:
    """Return a text, or a whole number as text. Raises InputError for another value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    _check_text(value, name)
    return value  # type: ignore[no-any-return]


def _check_text(value: Any, name: str) -> None:
    """Raise InputError if a value is no text."""
    if not isinstance(value, str):
        raise InputError(f"{name} is {type(value).__name__}, and must be text: write it in quotes")


def _check_number(value: Any, name: str) -> None:
    """Raise InputError if a value is no whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} is {type(value).__name__}, and must be a whole number")


def _read_document(document: Document) -> Document:
    """Return a document with its numbers as text. Raises InputError for a field of another type."""
    texts: dict[str, Any] = {}
    for name in ("id", "text", "title", "source", "date", "patient", "revision"):
        read = _read_optional if name in ("date", "patient", "revision") else _read_text
        texts[name] = read(getattr(document, name), f"Document.{name}")
    if not isinstance(document.metadata, Mapping):
        raise InputError(f"Document.metadata is {type(document.metadata).__name__}, and must be a dictionary")
    return replace(document, **texts)


def _read_optional(value: Any, name: str) -> str | None:
    """Return what `_read_text` does, or None for None."""
    return None if value is None else _read_text(value, name)


def _build_question(question: str | Question, options: Options, patient: str | int | None) -> Question:
    """Return the question about this patient. Raises InputError if it names another one."""
    patient = _read_optional(patient, "patient")
    if not isinstance(question, Question):
        return build_question(question, options, patient)
    _check_text(question.text, "the question")
    question = replace(question, patient=_read_optional(question.patient, "patient"))
    if patient is not None and question.patient not in (None, patient):
        raise InputError("the question is about another patient than patient=: leave out one of them")
    return question if patient is None else replace(question, patient=patient)


def build_question(text: str, options: Options = None, patient: str | None = None) -> Question:
    """Return a question about this patient's record. Options without letters get A, B, C... in order.

    A text of options is split at its commas. Raises InputError for an empty text, for text that is not UTF-8, and for a
    single option.
    """
    _check_text(text, "the question")
    if not text.strip():
        raise InputError("the question is empty: give a text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the question is not UTF-8: type it again, or set the terminal to UTF-8") from None
    if isinstance(options, str):
        options = [option.strip() for option in options.split(",") if option.strip()]
    if options is not None and not isinstance(options, Iterable):
        raise InputError(f"options is {type(options).__name__}, and must be texts, such as ['yes', 'no']")
    if options is not None and not isinstance(options, Mapping):
        options = list(options)
    if options is not None and len(options) == 1:
        raise InputError("a question with one option has no choice: give at least two, such as yes,no")
    if options is not None and not isinstance(options, Mapping):
        options = dict(zip(string.ascii_uppercase, options, strict=False))
    options = {_read_text(key, "a letter"): _read_text(text_, "an option") for key, text_ in (options or {}).items()}
    return Question(text=text, options=options, form="choice" if options else "open", patient=patient)
