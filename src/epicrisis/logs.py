"""What happens, written down as ids and counts: one JSON object a line, in a file for its owner alone.

Each kind of event has its fields listed here, and whatever is not listed is not written: texts, titles, documents' ids
and messages of errors stay out by construction. Prompts and replies are written where a log was opened for them, and to
no other place. The logger is `epicrisis`; nothing else in the package writes to it, and without a handler it is silent.
Knows no pipeline: whoever emits the events calls `log_event`.
"""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_never

from epicrisis import errors
from epicrisis.answers import (
    EVENT_NAMES,
    Answered,
    AnswerStarted,
    Drafted,
    Event,
    ExamplesFound,
    Failure,
    MapFinished,
    MapStarted,
    ModelCalled,
    Notice,
    PreflightChecked,
    Retrieved,
    TextDelta,
    Voted,
)
from epicrisis.errors import ChatError, StorageError
from epicrisis.printable import printable_json
from epicrisis.privacy import open_private
from epicrisis.prompts import Prompt
from epicrisis.protocols import ChatReply, ChatRequest

_LOGGER = logging.getLogger("epicrisis")
_LOGGER.addHandler(logging.NullHandler())

_LINE = "epicrisis_line"
_ID = re.compile(r"[\w.:/@#+\[\]-]{1,120}( (at [\w.:/@#+\[\]-]{1,120}|\d{1,6}))?", re.ASCII)
"""Such as `qwen3`, `qwen3 at http://127.0.0.1:8000`, `map 3`."""
_HASH = re.compile(r"[0-9a-f]{16,64}")
_ENDS = {"stop", "length", "content_filter", "tool_calls", "function_call"}


class LogFile(logging.Handler):
    """Writes the lines of this module, and nothing else that the logger may carry. Made by `open_log`."""

    def __init__(self, path: Path, with_text: bool) -> None:
        super().__init__()
        self.with_text = with_text
        self._path = path
        try:
            self._file: int | None = open_private(path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise self._unwritable(error) from None

    def emit(self, record: logging.LogRecord) -> None:
        if line := record.__dict__.get(_LINE):
            self.write(line)

    def write(self, line: str) -> None:
        """In one piece, so that lines of several processes do not mix. Raises StorageError where the disk does not take
        it: a log with holes tells wrong things."""
        left = f"{line}\n".encode(errors="backslashreplace")
        try:
            while left and self._file is not None:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            raise self._unwritable(error) from None

    def close(self) -> None:
        """Ends the log. Idempotent."""
        _LOGGER.removeHandler(self)
        if not _opened():
            _LOGGER.setLevel(logging.NOTSET)
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
        super().close()

    def _unwritable(self, error: OSError) -> StorageError:
        return StorageError(f"the log {self._path} cannot be written ({error.strerror}): free space, or name another")


def open_log(path: Path, with_text: bool = False) -> LogFile:
    """A log at that path, gone on with where there is one, until it is closed. Raises StorageError."""
    opened = LogFile(path, with_text)
    _LOGGER.addHandler(opened)
    _LOGGER.setLevel(logging.INFO)
    return opened


def _opened() -> list[LogFile]:
    return [handler for handler in _LOGGER.handlers if isinstance(handler, LogFile)]


def log_event(question_key: str, event: Event) -> None:
    """One line for one event, none for the pieces of a stream. `question_key`: as `Question.key`."""
    if _LOGGER.isEnabledFor(logging.INFO) and not isinstance(event, TextDelta):
        _say({"question": _key(question_key), "event": EVENT_NAMES[type(event)], **_told(event)})


def log_error(question_key: str, error: BaseException) -> None:
    """What ended a question or a run, by its kind alone: its message may quote."""
    if _LOGGER.isEnabledFor(logging.INFO):
        _say({"question": _key(question_key), "event": "error", "error": type(error).__name__})


def log_call(request: ChatRequest, reply: ChatReply | ChatError) -> None:
    """The prompt and what came of it, into the logs that were opened with texts and past the logger, which others may
    listen to. `prompt_sha256` is the `called` event's."""
    wanted = [opened for opened in _opened() if opened.with_text]
    if not wanted:
        return
    came = {"error": type(reply).__name__}
    if isinstance(reply, ChatReply):
        came = {"reply": reply.text, "reasoning": reply.reasoning}
    prompt = [{"role": message.role, "content": message.content} for message in request.messages]
    digest = Prompt(request.messages, "").sha256
    line = _line({"event": "texts", "prompt_sha256": digest, "sample": request.sample, "prompt": prompt, **came})
    for opened in wanted:
        opened.write(line)


def _say(fields: dict[str, Any]) -> None:
    line = _line(fields)
    _LOGGER.info("%s", line, extra={_LINE: line})


def _line(fields: dict[str, Any]) -> str:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return printable_json(json.dumps({"at": at, **fields}, ensure_ascii=False))


def _told(event: Event) -> dict[str, Any]:
    """All that is written of an event: numbers, and names that are this program's own."""
    match event:
        case Retrieved() | PreflightChecked() | ExamplesFound():
            return _found(event)
        case MapStarted() | MapFinished() | Voted() | Drafted() | AnswerStarted():
            return _step(event)
        case ModelCalled():
            names = {key: _id(getattr(event, key)) for key in ("stage", "model", "prompt_sha256", "template")}
            ended = event.finish_reason
            known = ended in _ENDS or isinstance(getattr(errors, ended, None), type)
            drawn = {"seed": event.seed, "sample": event.sample, "finish_reason": ended if known else "other"}
            return {**names, **drawn, "usage": asdict(event.usage)}
        case Notice(kind, _):
            return {"kind": _id(kind)}
        case Answered(answer):
            names = {"strategy": _id(answer.strategy), "state": _id(answer.state)}
            cited = {"citations": len(answer.citations), "verified": sum(each.verified for each in answer.citations)}
            parts = {name: len(getattr(answer, name)) for name in ("partials", "votes", "drafts")}
            return {
                **names,
                "error": _kind(answer.failure),
                "withheld": answer.withheld is not None,
                **cited,
                **parts,
                "usage": asdict(answer.usage),
            }
        case TextDelta():
            return {}
        case _:
            assert_never(event)


def _found(event: Retrieved | PreflightChecked | ExamplesFound) -> dict[str, Any]:
    match event:
        case Retrieved(ranking):
            return {"retriever": _id(ranking.retriever), "hits": len(ranking.hits), "notes": len(ranking.notes)}
        case PreflightChecked(verdict):
            signal = {"signal": _id(verdict.signal), "value": verdict.value}
            return {"agree": verdict.rankings_agree, **signal, "depth": verdict.depth}
        case ExamplesFound(ids, left_out):
            return {"examples": len(ids), "left_out": len(left_out)}


def _step(event: MapStarted | MapFinished | Voted | Drafted | AnswerStarted) -> dict[str, Any]:
    match event:
        case MapStarted(partition, passages):
            return {"partition": partition, "passages": len(passages)}
        case MapFinished(partial):
            found = {"partition": partial.partition, "passages": len(partial.passages), "state": _id(partial.state)}
            return {**found, "quotations": len(partial.quotations), "error": _kind(partial.failure)}
        case Voted(vote):
            return {"vote": vote.number, "state": _id(vote.state), "error": _kind(vote.failure)}
        case Drafted(draft):
            return {"draft": draft.number, "state": _id(draft.state), "error": _kind(draft.failure)}
        case AnswerStarted(stage, documents):
            return {"stage": _id(stage), "documents": documents}


def _kind(failure: Failure | None) -> str | None:
    return None if failure is None else _id(failure.kind)


def _id(name: str) -> str:
    """The name where it reads like one; anything that could be a sentence is not repeated."""
    return name if _ID.fullmatch(name) else "?"


def _key(question_key: str) -> str:
    """`id:hash`; the hash alone where somebody wrote a text for an id."""
    if _ID.fullmatch(question_key) and " " not in question_key:
        return question_key
    own = question_key.rpartition(":")[2]
    return own if _HASH.fullmatch(own) else "?"
