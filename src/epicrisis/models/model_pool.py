"""The models that the libraries of one process share: each is loaded once, and a program may add its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from epicrisis.core.answers import Notice
from epicrisis.core.errors import ModelMissing
from epicrisis.core.extensions import find_package, list_extensions, make_extension
from epicrisis.core.protocols import ChatModel, Encoder, PassageStore, Reranker
from epicrisis.models.catalogue import load_catalogue
from epicrisis.settings.settings import ModelSettings, RerankSettings, Settings

if TYPE_CHECKING:
    from epicrisis.models.chat.layers import Budget

EMBEDDED_CONCURRENCY = 1
"""Concurrent calls of an embedded model. More would wait inside it."""
_REQUEST_PARAMETERS = {"temperature": 0.0, "top_p": 1.0, "max_reasoning_tokens": 0}
"""Parameters of single requests. Roles that differ only in them share a model."""

OwnKind: TypeAlias = Literal["encoder", "reranker", "chat model", "store"]
T = TypeVar("T")


class ModelPool:
    """Models that the libraries of one process share: each is loaded once.

    A chat model is shared with its limits, and all chat models share one budget. Closing one of the pipelines closes
    the chat models of all. With `remembers`, encoders remember their last vectors.
    """

    def __init__(self, *, remembers: bool = False) -> None:
        self._remembers = remembers
        self._own: dict[tuple[str, str], Any] = {}
        self._unchecked: dict[tuple[OwnKind, str], None] = {}
        self._stores: list[PassageStore] = []
        self._models: dict[tuple[object, ...], Any] = {}
        self._chat_models: list[tuple[ModelSettings, ChatModel]] = []
        self._budget: Budget | None = None

    def load(self, load: Callable[[str, Path, int | None], T], name: str, settings: Settings) -> T:
        """Return the model with this name from `load`, such as `load_encoder`. Raises UserError as `load` does."""
        key = (load, name, settings.home, settings.threads)
        if key not in self._models:
            self._models[key] = load(name, settings.home, settings.threads)
        model: T = self._models[key]
        return model

    def add(self, kind: OwnKind, name: str, model: Encoder | Reranker | ChatModel | PassageStore) -> None:
        """Use an object of the program for the model of this kind and name."""
        self._own[kind, name] = model
        self._unchecked[kind, f"{name} of this program"] = None

    def list_notices(self, settings: Settings, *, chat_models: bool = True) -> tuple[Notice, ...]:
        """Return a notice on each component that is not part of epicrisis, if notes or the settings forbid the network.

        What such a component sends can be checked only in part. `chat_models` False: a search uses none.
        """
        if not (settings.local_only or settings.allow_remote):
            return ()
        consequence = "where it sends text is not known"
        if settings.local_only:
            consequence = (
                "connections of its Python code to other machines are refused; native code, and programs that it "
                "starts, cannot be checked"
            )
        notices: list[Notice] = []
        for kind, name in self._unchecked:
            if chat_models or kind != "chat model":
                notices.append(Notice("unchecked", f"the {kind} {name}: {consequence}"))
        return tuple(notices)

    def _note_extension(self, kind: OwnKind, name: str) -> bool:
        """Return whether an installed package offers the model. It is then listed as unchecked."""
        package = None if "/" in name or name in load_catalogue() else find_package(kind, name)
        if package is not None:
            self._unchecked[kind, f"{name} of the package {package}"] = None
        return package is not None

    def load_encoder(self, name: str, settings: Settings) -> Encoder:
        """Return the encoder with this name. Raises UserError as `load_encoder` does."""
        from epicrisis.models.encoders import load_cached_encoder, load_encoder

        self._note_extension("encoder", name)
        load = load_cached_encoder if self._remembers else load_encoder
        return self._own.get(("encoder", name)) or self.load(load, name, settings)

    def load_reranker(self, rerank: RerankSettings, settings: Settings) -> tuple[str, Reranker] | None:
        """Return the name and the reranker of the settings, or None without one.

        Raises UserError as `load_reranker` does.
        """
        if rerank.name is None:
            return None
        from epicrisis.models.pair_models import load_reranker

        self._note_extension("reranker", rerank.name)
        custom = self._own.get(("reranker", rerank.name))
        key = (load_reranker, rerank.name, settings.home, settings.threads, rerank.api_key_env)
        if custom is None and key not in self._models:
            self._models[key] = load_reranker(
                rerank.name, settings.home, settings.threads, lambda: os.environ.get(rerank.api_key_env)
            )
        return rerank.name, custom or self._models[key]

    def load_store(self, name: str, location: Path) -> PassageStore:
        """Return the store with this name at this place. Raises ModelMissing if no package offers it."""
        self._note_extension("store", name)
        key = (make_extension, name, location)
        if ("store", name) not in self._own and key not in self._models:
            store = make_extension("store", name, location)
            if store is None:
                names = ", ".join(list_extensions("store")) or "none"
                raise ModelMissing(f"no installed package offers the store {name}: installed are {names}")
            self._models[key] = store
            self._stores.append(store)
        chosen: PassageStore = self._own.get(("store", name)) or self._models[key]
        return chosen

    def load_chat_model(self, model: ModelSettings, settings: Settings) -> ChatModel:
        """Return the chat model with its limits. Those that differ only in sampling are one.

        Raises SettingsError for a budget in dollars with an unknown price.
        """
        from epicrisis.models.chat.layers import Budget
        from epicrisis.models.chat.loading import add_limits, load_chat

        model = model.model_copy(update=_REQUEST_PARAMETERS)
        for other, shared in self._chat_models:
            if other == model:
                return shared
        if self._budget is None:
            self._budget = Budget(settings.budget)
        limits, custom = model, self._own.get(("chat model", model.name))
        is_extension = self._note_extension("chat model", model.name)
        if custom is None and not is_extension and not limits.is_endpoint:
            limits = limits.model_copy(update={"concurrency": EMBEDDED_CONCURRENCY})
        loaded = custom or load_chat(model, settings.home, settings.threads)
        limited = add_limits(loaded, limits, self._budget)
        self._chat_models.append((model, limited))
        return limited

    async def aclose(self) -> None:
        """Stop the chat models, and close the stores of packages that have a method for it. Idempotent."""
        for _, model in self._chat_models:
            await model.aclose()
        for store in self._stores:
            if close := getattr(store, "close", None):
                close()
