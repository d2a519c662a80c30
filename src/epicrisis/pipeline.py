"""The one place that knows the order of the stages. It builds them from settings, yields typed events as they happen,
and ends with the answer.

    async with Pipeline.open(settings, "~/lib") as pipeline:
        async for event in pipeline.events(question):
            ...

Knows no screen and no wire: the CLI and the server translate the same events.
"""

from __future__ import annotations

import asyncio
import os
import string
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar

from epicrisis.answering.baselines import PROMPTS, chain_of_thought, closed_book, rag
from epicrisis.answering.brief_context import brief_context
from epicrisis.answering.context import Context
from epicrisis.corpus.chunking import sentences
from epicrisis.errors import EpicrisisError, InputError, ModelMissing
from epicrisis.library.library import Library
from epicrisis.models.catalogue import is_demo
from epicrisis.models.chat.bounded import BoundedModel
from epicrisis.models.encoder import load_encoder
from epicrisis.models.load import load_chat
from epicrisis.models.precomputed import PrecomputedEncoder
from epicrisis.models.rerankers import load_reranker
from epicrisis.privacy import quiet_logs, set_local_only
from epicrisis.prompts import folder_hash
from epicrisis.retrieval.retriever import Retriever, Searched
from epicrisis.seams import ChatModel, Encoder
from epicrisis.settings import ROLES, ModelSettings, ScopeSettings, Settings, load
from epicrisis.types import (
    Answer,
    Answered,
    Called,
    Delta,
    Event,
    Notice,
    Preflight,
    Question,
    Ranking,
    Scope,
    Usage,
)

Strategy: TypeAlias = Callable[[Question, Context], Awaitable[Answer]]

STRATEGIES: Mapping[str, Strategy] = {
    "brief-context": brief_context,
    "rag": rag,
    "closed-book": closed_book,
    "chain-of-thought": chain_of_thought,
}
WITHOUT_LIBRARY = frozenset({"closed-book", "chain-of-thought"})

DEFAULT_ENCODER = "minilm"
READY_MADE, READY_MADE_DIMENSIONS = "medcpt", 768
"""The encoder of NCBI's vectors of PubMed."""
SEARCHES_AT_ONCE = 2

P = ParamSpec("P")
T = TypeVar("T")


class Pipeline:
    """A library, its encoder and the chat models, ready to answer. Use as an async context manager, or `aclose()`."""

    def __init__(self, settings: Settings, models: Mapping[str, ChatModel], opened: Opened | None = None) -> None:
        self._settings = settings
        self._models = models
        self._opened = opened
        self._searches = asyncio.Semaphore(SEARCHES_AT_ONCE)

    @classmethod
    def open(cls, settings: Settings, library: Path | str | None) -> Self:
        """Opens what the strategy of the settings needs and nothing more. `library` may be None without retrieval.

        Raises UserError (no such library, another encoder, no such model) before any call is made.
        """
        quiet_logs()
        set_local_only(settings.local_only)
        models = load_models(settings)
        if settings.strategy in WITHOUT_LIBRARY or library is None:
            return cls(settings, models)
        return cls(settings, models, open_retriever(settings, library))

    async def events(self, question: Question, scope: Scope | None = None) -> AsyncIterator[Event]:
        """What happens, as it happens; the last event is `Answered`. Leaving cancels the calls in flight."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        recorded: list[Event] = []

        def emit(event: Event) -> None:
            if not isinstance(event, Delta):
                recorded.append(event)
            queue.put_nowait(event)

        async def work() -> Answer:
            try:
                for event in self._warnings():
                    emit(event)
                context = self._context(emit, scope or scope_of(self._settings.scope, question=question))
                return await STRATEGIES[self._settings.strategy](question, context)
            finally:
                queue.put_nowait(None)

        task = asyncio.create_task(work())
        try:
            while (event := await queue.get()) is not None:
                yield event
            answer = await task
        finally:
            task.cancel()
            await asyncio.wait([task])
        usage = sum((event.usage for event in recorded if isinstance(event, Called)), Usage())
        yield Answered(replace(answer, usage=usage, trace=tuple(recorded)))

    async def answer(self, question: Question, scope: Scope | None = None) -> Answer:
        """The answer alone, its trace included."""
        async for event in self.events(question, scope):
            if isinstance(event, Answered):
                return event.answer
        raise RuntimeError("a pipeline's last event is its answer")

    def recipe(self) -> dict[str, Any]:
        """All that decides the answers: settings, models, the library's identity and size, this version."""
        left_out = {"home", "local_only", "threads", "deadline_seconds", "fuse"}
        recipe: dict[str, Any] = {
            "epicrisis": version("epicrisis"),
            "prompts": folder_hash(PROMPTS),
            "settings": self._settings.model_dump(exclude=left_out),
        }
        if self._opened is not None:
            libraries = (self._opened.library, *self._opened.others)
            told = [{"id": each.manifest.library_id, "passages": each.count()[1]} for each in libraries]
            recipe["library"] = {**told[0], "fused": told[1:]}
        return recipe

    async def aclose(self) -> None:
        """Stops the models and closes the library. Idempotent."""
        for model in set(self._models.values()):
            await model.aclose()
        if self._opened is not None:
            self._opened.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _context(self, emit: Callable[[Event], None], scope: Scope) -> Context:
        settings = self._settings

        async def retrieve(question: Question) -> Ranking:
            ranking = await self._offload(self._needed().rank, question.text, settings.k, settings.by, scope)
            for note in ranking.notes:
                emit(Notice("search", note))
            return ranking

        async def preflight(question: Question) -> Preflight:
            check = settings.preflight
            return await self._offload(
                self._needed().preflight, question.text, scope, n=check.n, threshold=check.threshold, depth=check.depth
            )

        deadline = settings.deadline_seconds
        return Context(
            models=self._models,
            scope=scope,
            emit=emit,
            retrieve=retrieve,
            preflight=preflight if settings.preflight.enabled else None,
            partition=settings.partition,
            seed=settings.seed,
            temperatures={role: settings.model_for(role).temperature for role in ROLES},
            deadline=None if deadline is None else time.monotonic() + deadline,
        )

    def _needed(self) -> Retriever:
        if self._opened is None:
            raise EpicrisisError(f"the strategy {self._settings.strategy} reads a library: name one")
        return self._opened.retriever

    async def _offload(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Runs synchronous work in a thread, a bounded number at once."""
        async with self._searches:
            return await asyncio.to_thread(work, *arguments, **named)

    def _warnings(self) -> list[Notice]:
        names = dict.fromkeys(self._settings.model_for(role).name for role in ROLES)
        return [
            Notice(
                "demo-model",
                f"{name} is a small model for demonstration, not for use: name a better one with --model "
                "(the URL of an OpenAI-compatible endpoint, or a .gguf file)",
            )
            for name in names
            if is_demo(name)
        ]


def load_models(settings: Settings) -> dict[str, ChatModel]:
    """The chat model of each role; roles with the same settings share one. Nothing is contacted yet."""
    made: dict[ModelSettings, ChatModel] = {}
    for role in ROLES:
        wanted = settings.model_for(role)
        if wanted not in made:
            made[wanted] = BoundedModel(_load(wanted, settings), wanted.concurrency)
    return {role: made[settings.model_for(role)] for role in ROLES}


def _load(wanted: ModelSettings, settings: Settings) -> ChatModel:
    return load_chat(
        wanted.name,
        settings.home,
        api_key_env=wanted.api_key_env,
        timeout_seconds=wanted.timeout_seconds,
        context_tokens=wanted.context_tokens,
        threads=settings.threads,
    )


@dataclass(frozen=True, slots=True)
class Opened:
    """A library open for reading and its search, with whatever else that needs. Use as a context manager."""

    library: Library
    retriever: Retriever
    others: tuple[Library, ...] = ()

    def close(self) -> None:
        """Closes the libraries. Idempotent."""
        for library in (self.library, *self.others):
            library.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_retriever(settings: Settings, library: Path | str) -> Opened:
    """The library, opened for reading, and its search. No encoder is loaded where only words are searched.

    Raises UserError: no such library, another encoder, no such model or reranker.
    """
    path = Path(library).expanduser()
    needs_encoder = settings.by != "bm25" or (settings.strategy == "brief-context" and settings.preflight.enabled)
    reranker = None
    if settings.rerank.name is not None:
        loaded = load_reranker(settings.rerank.name, settings.home, settings.threads, _key(settings.rerank.api_key_env))
        reranker = (settings.rerank.name, loaded)
    first, encoder = _searched(settings, path, settings.encoder) if needs_encoder else (Library.open(path), None)
    also = [_searched(settings, other.expanduser(), None) for other in settings.fuse] if needs_encoder else []
    retriever = Retriever(
        first,
        encoder,
        settings.rrf_k,
        also=[Searched(store, other) for store, other in also],
        remedy=settings.long_questions,
        sentences=sentences,
        reranker=reranker,
        rerank_depth=settings.rerank.depth,
    )
    return Opened(first, retriever, tuple(store for store, _ in also))


def _searched(settings: Settings, path: Path, encoder_name: str | None) -> tuple[Library, Encoder]:
    from epicrisis.library.manifest import read_manifest

    encoder = load_encoder(encoder_name or read_manifest(path).encoder_name, settings.home, settings.threads)
    return Library.open(path, encoder_fingerprint=encoder.fingerprint), encoder


def _key(variable: str) -> Callable[[], str | None]:
    return lambda: os.environ.get(variable)


def encoder_to_add(settings: Settings, library: Path, ready_made: bool) -> tuple[Encoder, str]:
    """The encoder that additions to this library need, and its name.

    For ready-made vectors of MedCPT, and for a library of them, it need not be installed: then a stand-in that refuses
    to encode anything.
    """
    from epicrisis.library.manifest import PRECOMPUTED, read_manifest

    made = read_manifest(library) if (library / "manifest.json").is_file() else None
    name = settings.encoder or (made.encoder_name if made else READY_MADE if ready_made else DEFAULT_ENCODER)
    try:
        return load_encoder(name, settings.home, settings.threads), name
    except ModelMissing:
        precomputed = made.encoder_fingerprint.startswith(PRECOMPUTED) if made else ready_made
        if settings.encoder is not None or not precomputed:
            raise
        dimensions = made.dimensions if made else READY_MADE_DIMENSIONS
        return PrecomputedEncoder(f"{PRECOMPUTED}{name}", name, dimensions), name


def scope_of(settings: ScopeSettings, patient: str | None = None, question: Question | None = None) -> Scope:
    """What a search may see by the settings, for that patient; with `hide_gold` not the question's own documents."""
    gold = question.gold_documents if question is not None and settings.hide_gold else ()
    return Scope(
        patient=patient if question is None else question.patient,
        as_of=settings.as_of,
        hidden=frozenset((*settings.hide, *gold)),
        since=settings.since,
        publication_types=frozenset(settings.types),
        journals=frozenset(settings.journals),
        without_retracted="retracted" in settings.without,
    )


def as_question(text: str, options: Sequence[str] | Mapping[str, str] | None = None) -> Question:
    """A question; options without letters get A, B, C... in their order."""
    if not text.strip():
        raise InputError("the question is empty: say what is asked")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the question is not UTF-8: type it anew, or set the terminal to UTF-8") from None
    if options is not None and not isinstance(options, Mapping):
        options = dict(zip(string.ascii_uppercase, options, strict=False))
    return Question(text=text, options=dict(options or {}), form="choice" if options else "open")


async def stream(
    library: Path | str | None, question: str | Question, options: Sequence[str] | Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Event]:  # fmt: skip
    """The events of one question, the last one `Answered`. `settings` as in `epicrisis.settings.Settings`; `model`
    names the writer."""
    async with Pipeline.open(load(_flags(settings)), library) as pipeline:
        asked = question if isinstance(question, Question) else as_question(question, options)
        async for event in pipeline.events(asked):
            yield event


def ask(
    library: Path | str | None, question: str | Question, options: Sequence[str] | Mapping[str, str] | None = None,
    **settings: Any,
) -> Answer:  # fmt: skip
    """The answer to one question; for scripts and notebooks. Arguments as in `stream`."""

    async def last() -> Answer:
        async for event in stream(library, question, options, **settings):
            if isinstance(event, Answered):
                return event.answer
        raise RuntimeError("a pipeline's last event is its answer")

    # A notebook has a loop running already; a thread of its own serves both.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, last()).result()


def _flags(settings: Mapping[str, Any]) -> dict[str, Any]:
    model = settings.get("model")
    rest = {key: value for key, value in settings.items() if key != "model"}
    return rest if model is None else {**rest, "models": {"writer": {"name": str(model)}}}
