"""One question in one call, for scripts and notebooks, as a stream of events or as the answer alone.

Knows the settings by their names and the pipeline, and no command line.
"""

from __future__ import annotations

import asyncio
import string
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from epicrisis.answers import Answer, Answered, Event
from epicrisis.configuration import load_settings
from epicrisis.errors import InputError, SettingsError
from epicrisis.pipeline import Pipeline
from epicrisis.settings import Settings
from epicrisis.types import Question


def build_question(
    text: str, options: Sequence[str] | Mapping[str, str] | None = None, patient: str | None = None
) -> Question:
    """A question, of that patient's record; options without letters get A, B, C... in their order."""
    if not text.strip():
        raise InputError("the question is empty: say what is asked")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the question is not UTF-8: type it anew, or set the terminal to UTF-8") from None
    if options is not None and not isinstance(options, Mapping):
        options = dict(zip(string.ascii_uppercase, options, strict=False))
    return Question(text=text, options=dict(options or {}), form="choice" if options else "open", patient=patient)


def check_settings(settings: Settings) -> Settings:
    """The same settings. Raises SettingsError where what they say would not be heeded when a question is asked.

    It is no matter of the settings alone: experiments hold whole notes to a budget whatever `unit` says.
    """
    if settings.note_tokens is not None and (settings.unit != "note" or settings.strategy == "full-context"):
        raise SettingsError(
            "setting note_tokens: only whole notes that were searched for are held to it: ask with --unit note and "
            "--strategy rag or brief-context, or leave note_tokens (--note-tokens) out"
        )
    return settings


async def stream(
    library: Path | str | None,
    question: str | Question,
    options: Sequence[str] | Mapping[str, str] | None = None,
    *,
    patient: str | None = None,
    **settings: Any,
) -> AsyncIterator[Event]:
    """The events of one question, the last one `Answered`. `patient`: whose record it is asked of. `settings` as in
    `epicrisis.settings.Settings`; `model` names the writer. Raises InputError where the question says another patient.
    """
    asked = question if isinstance(question, Question) else build_question(question, options, patient)
    if patient is not None and asked.patient not in (None, patient):
        raise InputError("the question is of another patient than patient= says: leave one of them out")
    asked = asked if patient is None else replace(asked, patient=patient)
    async with Pipeline.open(check_settings(load_settings(_flags(settings))), library) as pipeline:
        async for event in pipeline.events(asked):
            yield event


def ask(
    library: Path | str | None,
    question: str | Question,
    options: Sequence[str] | Mapping[str, str] | None = None,
    *,
    patient: str | None = None,
    **settings: Any,
) -> Answer:
    """The answer to one question; for scripts and notebooks. Arguments as in `stream`."""

    async def last() -> Answer:
        async for event in stream(library, question, options, patient=patient, **settings):
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
