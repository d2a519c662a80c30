"""The chat model that grades answers or writes questions, opened from the settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from epicrisis.answering.structured_request import ModelClient
from epicrisis.pipeline import Pipeline
from epicrisis.settings import ModelsByRole, Settings
from epicrisis.types import Scope


@asynccontextmanager
async def open_model_client(settings: Settings, role: str = "writer") -> AsyncGenerator[ModelClient, None]:
    """Yield the model of this role, with the cache, budget, retries and recording of the settings.

    Raises UserError before any call is made.
    """
    overrides = {"strategy": "closed-book", "models": ModelsByRole(writer=settings.model_for(role))}
    async with Pipeline.open(settings.model_copy(update=overrides), None) as pipeline:
        context = pipeline.build_context(lambda event: None, Scope())
        recipe = pipeline.recipe()["models"]["writer"]
        model, sampling = context.models["writer"], context.sampling["writer"]
        yield ModelClient(model, sampling, context.seed, recipe, pipeline.concurrency)
