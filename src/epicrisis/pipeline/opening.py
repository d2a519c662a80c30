"""What answers questions, opened once: the library with its search, the chat models, and what the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from epicrisis.answering.confidence import ConfidenceCalibration
from epicrisis.answering.strategy import find_strategy
from epicrisis.answering.voting import NO_EXAMPLES
from epicrisis.core.answers import (
    Event,
    Notice,
)
from epicrisis.core.errors import SettingsError
from epicrisis.core.protocols import ChatModel, RewardModel, Verifier
from epicrisis.library.core.patients import Roster
from epicrisis.models.model_pool import ModelPool
from epicrisis.pipeline import components
from epicrisis.pipeline.components import ExampleSearch, LibrarySearch
from epicrisis.pipeline.evidence_selection import EvidenceSearch, RemoteSearch
from epicrisis.privacy.patient_data_policy import list_remote_hosts, protect_patient_data
from epicrisis.privacy.record_access import RecordAccess, open_access
from epicrisis.settings.settings import ModelsByRole, Settings
from epicrisis.system.local_only import silence_dependency_logs
from epicrisis.system.logs import open_log

if TYPE_CHECKING:
    from epicrisis.privacy.deidentification.opened_deidentifier import LibraryDeidentification

CONCURRENT_SEARCHES = 2

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class OpenParts:
    """A library, its encoder and the chat models, ready to answer."""

    settings: Settings
    models: Mapping[str, ChatModel]
    search: LibrarySearch | None = None
    """The library and its search, None for strategies without a library."""
    examples: ExampleSearch | None = None
    reward: RewardModel | None = None
    _: KW_ONLY
    notices: Sequence[Notice] = ()
    remote: Sequence[str] = ()
    calibration: ConfidenceCalibration | None = None
    verifier: Verifier | None = None
    """Checks the claims if the setting `check` is `nli`."""
    rosters: Sequence[Roster] = ()
    """The patients to check questions against if there is no `search`, which has its own."""
    resources: ExitStack = field(default_factory=ExitStack)
    searches: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_SEARCHES))
    remote_search: RemoteSearch | None = None
    access: RecordAccess | None = None
    deidentification: LibraryDeidentification | None = None
    readable: frozenset[str] | None = None
    """The patients that the reader may learn of. None: all."""

    @property
    def readable_rosters(self) -> Sequence[Roster]:
        """The patients of whom the reader may learn."""
        rosters = self.all_rosters
        return rosters if self.readable is None else [roster.limit(self.readable) for roster in rosters]

    @property
    def all_rosters(self) -> Sequence[Roster]:
        """All patients of the library and of those beside it."""
        return self.rosters if self.search is None else self.search.rosters

    @classmethod
    def open(
        cls,
        settings: Settings,
        library: Path | str | None,
        strategies: Collection[str] = (),
        notices: Sequence[Notice] = (),
        pool: ModelPool | None = None,
    ) -> Self:
        """Open the components for the strategy of the settings and for these strategies, and nothing else.

        `library` may be None for strategies without a library. Raises UserError (no such library, another encoder, no
        such model) before any call of a model. Pipelines of one `pool` share their models.
        """
        needed, pool = [find_strategy(name) for name in {settings.strategy, *strategies}], pool or ModelPool()
        needs_models = any(strategy.needs_model for strategy in needed)
        needs_library = any(strategy.needs_library for strategy in needed)
        silence_dependency_logs()
        if not needs_models:
            # No chat model is called, so its address does not count.
            settings = settings.model_copy(update={"models": ModelsByRole()})
        settings = protect_patient_data(settings, library)
        with ExitStack() as resources:
            if settings.log is not None:
                resources.callback(open_log(settings.log, settings.log_text).close)
            search, rosters = None, tuple[Roster, ...]()
            if library is not None and needs_library:
                searches = any(strategy.needs_search for strategy in needed)
                preflight = settings.preflight.enabled
                compares = any(strategy.compares_texts(preflight) for strategy in needed)
                search = components.open_library_search(settings, library, searches, compares_texts=compares, pool=pool)
                resources.enter_context(search)
            elif library is not None:
                rosters = components.read_rosters(library, *settings.beside)
            shows_examples = any(strategy.examples != "unused" for strategy in needed)
            examples = components.open_examples(settings, pool) if shows_examples else None
            if examples is not None:
                resources.enter_context(examples.search)
            for strategy in needed:
                if strategy.examples == "required" and examples is None:
                    raise SettingsError(f"{strategy.name} {NO_EXAMPLES}")
            models, cache_notices = (
                components.open_cached_models(settings, search, resources, pool) if needs_models else ({}, [])
            )
            deidentification = None
            if needs_models and settings.deidentify is not None:
                from epicrisis.privacy.deidentification.opened_deidentifier import open_deidentification

                patients, store = (rosters, None) if search is None else (search.rosters, search.store)
                deidentification = open_deidentification(settings, library, patients, store)
            calibration, remarks = components.open_calibration(settings)
            needs_reward = any(strategy.needs_reward for strategy in needed)
            reward = components.open_reward_model(settings, pool) if needs_reward else None
            access = open_access(settings, library)
            return cls(
                settings,
                models,
                search,
                examples,
                reward,
                notices=(*notices, *cache_notices, *remarks, *pool.list_notices(settings)),
                calibration=calibration,
                remote=list_remote_hosts(settings, library),
                verifier=components.open_verifier(settings, pool) if needs_library else None,
                rosters=rosters,
                access=access,
                readable=None if access is None else access.readable,
                deidentification=deidentification,
                resources=resources.pop_all(),
            )

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that have a chat model."""
        return tuple(filter(self.models.__contains__, self.settings.roles))

    def protect_models(self, patient: str | None, emit: Callable[[Event], None]) -> Mapping[str, ChatModel]:
        """Return the chat model of each role for texts about this patient, with surrogates if the settings say so."""
        return self.models if self.deidentification is None else self.deidentification.wrap(self.models, patient, emit)

    async def aclose(self) -> None:
        """Stop the models and close the library. Idempotent."""
        for model in set(self.models.values()):
            await model.aclose()
        self.resources.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def search_evidence(
        self, work: Callable[Concatenate[EvidenceSearch, P], T], *arguments: P.args, **keywords: P.kwargs
    ) -> T:
        """Run a method of the search, here or remotely."""
        if self.remote_search is not None:
            result: T = await self.remote_search.run(work.__name__, arguments, keywords)
            return result
        search = EvidenceSearch(self.settings, None if self.search is None else self.search.retriever)
        return await self.offload(work, search, *arguments, **keywords)

    async def offload(self, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Run synchronous work in a thread, a limited number at a time."""
        async with self.searches:
            return await asyncio.to_thread(work, *arguments, **keywords)
