"""Libraries and models that are opened once, and shared by all requests.

    async with await Resources.open(settings, [Path("~/lib")]) as resources:
        library = resources.find("lib")
        async for event in library.with_settings(RequestSettings(k=8)).events(question):
            ...

A request chooses some settings (`RequestSettings`). It never chooses a file, a model or a host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError

from epicrisis.answering.strategy import find_strategy, list_strategies
from epicrisis.core.answers import Notice
from epicrisis.core.dates import last_day
from epicrisis.core.errors import InputError, SettingsError
from epicrisis.core.strategy_names import StrategyName
from epicrisis.core.study_types import StudyType
from epicrisis.core.types import CountUnit, EvidenceOrder, EvidenceUnit, SearchMode
from epicrisis.library.core.patients import holds_patients
from epicrisis.models.model_pool import ModelPool
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.server.base.hidden_paths import hide_file_paths
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.request_body import RequestBody
from epicrisis.settings.settings import ScopeSettings, Settings
from epicrisis.system.local_only import local_path

MAX_K = 200
"""The most documents or passages that a request may read."""
_SCOPE_KEYS = ("as_of", "since", "types", "journals")


def _check_date(date: str) -> str:
    try:
        last_day(date)
    except ValueError as error:
        # What was sent instead of a date may be a patient's name.
        raise ValueError(str(error).partition(":")[0]) from None
    return date


RequestDate = Annotated[str, Field(max_length=10), AfterValidator(_check_date)]
ScopeValue = Annotated[str, Field(min_length=1, max_length=200)]
ScopeValues = Annotated[tuple[ScopeValue, ...], Field(fail_fast=True)]
StudyTypes = Annotated[tuple[StudyType, ...], Field(fail_fast=True)]


class RequestSettings(RequestBody):
    """Settings that a request may choose. A value of null keeps the setting of the server."""

    strategy: StrategyName | None = Field(None, description="How to answer.")
    by: SearchMode | None = Field(None, description="Search by vectors, words or both.")
    k: int | None = Field(None, ge=1, le=MAX_K, description="How much evidence to read, in documents or passages.")
    count: CountUnit | None = Field(None, description="Unit of `k` and of a partition.")
    partition: int | None = Field(None, ge=1, le=MAX_K, description="Evidence per map call.")
    sentences: int | None = Field(None, ge=1, le=MAX_K, description="Sentences that evidence and focused select.")
    order: EvidenceOrder | None = Field(None, description="Order of the evidence in a prompt.")
    unit: EvidenceUnit | None = Field(None, description="Passages or whole notes of a record.")
    timeline: bool | None = Field(None, description="Restrict notes by the time expressions of the question.")
    prefer: StudyTypes | None = Field(None, max_length=20, description="Study types to move forward.")
    as_of: RequestDate | None = Field(None, description="Hide documents after this date, and undated ones.")
    since: RequestDate | None = Field(None, description="Hide documents before this date, and undated ones.")
    types: ScopeValues | None = Field(None, max_length=50, description="Only these publication types.")
    journals: ScopeValues | None = Field(None, max_length=50, description="Only these journals.")

    def apply(self, settings: Settings) -> Settings:
        """Return the settings of the server with the choices of this request.

        Raises InputError for values that contradict each other or settings of the server.
        """
        chosen = self.model_dump(exclude_none=True)
        scope: dict[str, Any] = {}
        for key in _SCOPE_KEYS:
            if key in chosen:
                scope[key] = chosen.pop(key)
        if not chosen and not scope:
            return settings
        try:
            if scope:
                chosen["scope"] = ScopeSettings.model_validate({**dict(settings.scope), **scope})
            # The combinations are checked again. A dump would lose the secrets in addresses.
            return Settings.model_validate({**dict(settings), **chosen})
        except ValidationError as error:
            message = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise InputError(message.removeprefix("Value error, ")) from None


@dataclass(frozen=True, slots=True, eq=False)
class OpenLibrary:
    """A library that is open for all requests, with its search and the chat models."""

    name: str
    """The name of its folder, which requests use in place of a path."""
    pipeline: Pipeline
    holds_patients: bool
    strategies: tuple[str, ...]
    """The strategies that its components can run."""

    def with_settings(self, chosen: RequestSettings) -> Pipeline:
        """Return a pipeline with the settings of a request. It shares everything open; do not close it.

        Raises InputError for a strategy that is not available, and as `RequestSettings.apply` does.
        """
        settings = chosen.apply(self.pipeline.settings)
        if settings.strategy not in self.strategies:
            raise InputError(
                f"the strategy {settings.strategy} is not available here: choose one of {', '.join(self.strategies)}"
            )
        return replace(self.pipeline, settings=settings)


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """Everything that the requests share. An async context manager."""

    libraries: Mapping[str, OpenLibrary]
    """By name, in the order of the command. The first answers requests that name none."""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Closed with the resources."""
    sign_in_host: str = ""
    """Host of the identity provider, if there is one."""
    private_folders: dict[str, str] = field(default_factory=dict)
    """Folders of the server, with what messages for clients call them."""

    @classmethod
    async def open(cls, settings: Settings, libraries: Sequence[Path], notices: Sequence[Notice] = ()) -> Self:
        """Open the libraries with everything their strategies need. They share encoders, chat models and the budget.

        `settings` are those of the server; without a chat model only the strategy evidence is available (see
        `configuration.choose_strategy`). Raises SettingsError for two folders of one name, and UserError as
        `Pipeline.open`.
        """
        if not libraries:
            raise SettingsError("there is no library to serve: name the folder of at least one library")
        async with AsyncExitStack() as stack:
            open_libraries: dict[str, OpenLibrary] = {}
            strategies = list_possible_strategies(settings)
            pool = ModelPool(remembers=True)
            for folder in map(local_path, libraries):
                name = folder.absolute().name
                if name in open_libraries:
                    raise SettingsError(f"two libraries are called {name}: rename the folder of one of them")
                # One handle on the log is enough for all libraries.
                logged = settings if not open_libraries else settings.model_copy(update={"log": None})
                pipeline = Pipeline.open(logged, folder, strategies, notices, pool)
                stack.push_async_callback(pipeline.aclose)
                # The server has an access log of its own, see `AccessControl`.
                pipeline = replace(
                    pipeline, access=None, settings=pipeline.settings.model_copy(update={"log": settings.log})
                )
                # Of a store of another package, literature alone is read: it cannot say which patients it holds.
                has_notes = settings.store is None and holds_patients(folder)
                open_libraries[name] = OpenLibrary(name, pipeline, has_notes, strategies)
            await asyncio.to_thread(load_endpoint_client, settings)
            return cls(open_libraries, stack.pop_all())

    @property
    def default(self) -> OpenLibrary:
        """The library of requests that name none."""
        return next(iter(self.libraries.values()))

    def find(self, name: str | None) -> OpenLibrary:
        """Return the library with this name, or the first for None. Raises NotFound."""
        if name is None:
            return self.default
        if name not in self.libraries:
            raise NotFound(f"no library is called {name!a}: GET /api/v1/libraries lists them")
        return self.libraries[name]

    def hide_paths(self, message: str) -> str:
        """Return the message with the names of the libraries in place of their folders, and without other paths."""
        for library in self.libraries.values():
            search = library.pipeline.search
            if search is not None:
                message = message.replace(str(search.store.path), library.name)
        for folder, name in self.private_folders.items():
            message = message.replace(folder, name)
        return hide_file_paths(message)

    async def aclose(self) -> None:
        """Close the libraries and stop the models. Idempotent."""
        await self.stack.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def load_endpoint_client(settings: Settings) -> None:
    """Import the client of endpoints if a chat model is one: the first question would hold up all others for 2 s."""
    if any(settings.model_for(role).is_endpoint for role in settings.roles):
        import_module("epicrisis.models.chat.endpoints.connection")


def list_possible_strategies(settings: Settings) -> tuple[str, ...]:
    """Return the names of the strategies that these settings can run, their own first.

    Without a chat model that is `evidence` alone. Strategies that show solved questions need `examples.library`.
    """
    if not find_strategy(settings.strategy).needs_model:
        return (settings.strategy,)
    possible = [
        strategy.name
        for strategy in list_strategies()
        if (strategy.examples == "unused" or settings.examples.library is not None)
        and (strategy.needs_search or not strategy.needs_library or not settings.beside)
    ]
    return tuple(dict.fromkeys([settings.strategy, *possible]))
