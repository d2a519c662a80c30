"""Ask one question in one call, for scripts and notebooks: `stream` yields events, `ask` returns the answer."""

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


async def stream(
    library: Path | str | None,
    question: str | Question,
    options: Sequence[str] | Mapping[str, str] | None = None,
    *,
    patient: str | None = None,
    **settings: Any,
) -> AsyncIterator[Event]:
    """Yield the events of one question; the last one is `Answered`.

    `patient` is the patient whose record is read. `settings` are those of `epicrisis.settings.Settings`; `model` names
    the writer. Raises InputError if the question names another patient.
    """
    if not isinstance(question, Question):
        question = build_question(question, options, patient)
    if patient is not None and question.patient not in (None, patient):
        raise InputError("the question is about another patient than patient=: leave out one of them")
    if patient is not None:
        question = replace(question, patient=patient)
    model = settings.pop("model", None)
    if model is not None:
        settings["models"] = {"writer": {"name": str(model)}}
    async with Pipeline.open(check_settings(load_settings(settings)), library) as pipeline:
        async for event in pipeline.events(question):
            yield event


def ask(
    library: Path | str | None,
    question: str | Question,
    options: Sequence[str] | Mapping[str, str] | None = None,
    *,
    patient: str | None = None,
    **settings: Any,
) -> Answer:
    """Return the answer to one question. The arguments are those of `stream`."""

    async def last_answer() -> Answer:
        async for event in stream(library, question, options, patient=patient, **settings):
            if isinstance(event, Answered):
                return event.answer
        raise RuntimeError("a pipeline's last event is its answer")

    # In a notebook an event loop is already running, so the question gets a thread of its own.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, last_answer()).result()


def build_question(
    text: str, options: Sequence[str] | Mapping[str, str] | None = None, patient: str | None = None
) -> Question:
    """Return a question about this patient's record. Options without letters get A, B, C... in order.

    Raises InputError for an empty text and for text that is not UTF-8.
    """
    if not text.strip():
        raise InputError("the question is empty: give a text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the question is not UTF-8: type it again, or set the terminal to UTF-8") from None
    if options is not None and not isinstance(options, Mapping):
        options = dict(zip(string.ascii_uppercase, options, strict=False))
    return Question(text=text, options=dict(options or {}), form="choice" if options else "open", patient=patient)


def check_settings(settings: Settings) -> Settings:
    """Return the settings. Raises SettingsError for settings without effect on a question.

    This is no check of the settings alone, as experiments limit whole notes whatever `unit` is.
    """
    if settings.note_tokens is not None and (settings.unit != "note" or settings.strategy == "full-context"):
        raise SettingsError(
            "setting note_tokens: it only limits whole notes found by a search: use the setting unit = note and the "
            "strategy rag or brief-context, or leave out note_tokens"
        )
    return settings
