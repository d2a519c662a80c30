"""Log events as ids and counts: one JSON object per line, in a file only its owner can read.

Each kind of event has a list of fields, and nothing else is written: texts, titles, document ids and error messages
are excluded by construction. Prompts and replies go only to logs opened with text. All lines go through the logger
`epicrisis`, which is silent without a handler.
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

from epicrisis.core import answers, errors
from epicrisis.core.answers import Event, Failure
from epicrisis.core.errors import ChatError, StorageError
from epicrisis.core.printable import printable_json
from epicrisis.core.prompts import Prompt
from epicrisis.core.protocols import ChatReply, ChatRequest
from epicrisis.core.serialization import EVENT_NAMES
from epicrisis.system.local_only import open_private

_LOGGER = logging.getLogger("epicrisis")
_LOGGER.addHandler(logging.NullHandler())

_LINE = "epicrisis_line"
_NAME = re.compile(r"[\w.:/@#+\[\]-]{1,120}( (at [\w.:/@#+\[\]-]{1,120}|\d{1,6}))?", re.ASCII)
"""For example `qwen3`, `qwen3 at http://127.0.0.1:8000`, `map 3`."""
_HASH = re.compile(r"[0-9a-f]{16,64}")
FINISH_REASONS = {"stop", "length", "content_filter", "tool_calls", "function_call"}


class LogFile(logging.Handler):
    """A log file. It writes only the lines of this module, and nothing else that the logger receives."""

    def __init__(self, path: Path, with_text: bool) -> None:
        super().__init__()
        self.with_text = with_text
        self._path = path
        try:
            self._file: int | None = open_private(path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise self._storage_error(error) from None

    def emit(self, record: logging.LogRecord) -> None:
        if line := record.__dict__.get(_LINE):
            self.write(line)

    def write(self, line: str) -> None:
        """Append a line in one piece, so that lines of several processes do not mix.

        Raises StorageError if the disk rejects it, since a log with gaps would mislead.
        """
        data = f"{line}\n".encode(errors="backslashreplace")
        try:
            while data and self._file is not None:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise self._storage_error(error) from None

    def close(self) -> None:
        """Close the log. Idempotent."""
        _LOGGER.removeHandler(self)
        if not _log_files():
            _LOGGER.setLevel(logging.NOTSET)
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
        super().close()

    def _storage_error(self, error: OSError) -> StorageError:
        return StorageError(
            f"the log {self._path} cannot be written ({error.strerror}): free some space, or choose another file"
        )


def open_log(path: Path, with_text: bool = False) -> LogFile:
    """Return the log at this path, appended to until it is closed. Raises StorageError."""
    log = LogFile(path, with_text)
    _LOGGER.addHandler(log)
    _LOGGER.setLevel(logging.INFO)
    return log


def log_event(question_key: str, event: Event) -> None:
    """Log an event of the question with this `Question.key`. Pieces of a stream are not logged."""
    if _LOGGER.isEnabledFor(logging.INFO) and not isinstance(event, answers.TextDelta):
        _write({"question": _safe_key(question_key), "event": EVENT_NAMES[type(event)], **_event_fields(event)})


def log_error(question_key: str, error: BaseException) -> None:
    """Log the type of the error that ended a question or run. Its message is left out, as it may quote text."""
    if _LOGGER.isEnabledFor(logging.INFO):
        _write({"question": _safe_key(question_key), "event": "error", "error": type(error).__name__})


def log_call(request: ChatRequest, reply: ChatReply | ChatError) -> None:
    """Write prompt and reply to the logs opened with text, bypassing the logger and its other handlers.

    `prompt_sha256` is that of the `called` event.
    """
    logs = [log for log in _log_files() if log.with_text]
    if not logs:
        return
    result = {"error": type(reply).__name__}
    if isinstance(reply, ChatReply):
        result = {"reply": reply.text, "reasoning": reply.reasoning}
    fields = {
        "event": "texts",
        "prompt_sha256": Prompt(request.messages, "").sha256,
        "sample": request.sample,
        "prompt": list(map(asdict, request.messages)),
        **result,
    }
    line = _format_line(fields)
    for log in logs:
        log.write(line)


def _log_files() -> list[LogFile]:
    return [handler for handler in _LOGGER.handlers if isinstance(handler, LogFile)]


def _write(fields: dict[str, Any]) -> None:
    line = _format_line(fields)
    _LOGGER.info("%s", line, extra={_LINE: line})


def _format_line(fields: dict[str, Any]) -> str:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return printable_json(json.dumps({"at": at, **fields}, ensure_ascii=False))


def _event_fields(event: Event) -> dict[str, Any]:
    """Return the fields of an event: numbers, and names defined by this program."""
    match event:
        case answers.Retrieved(ranking):
            return {"retriever": safe_name(ranking.retriever), "hits": len(ranking.hits), "notes": len(ranking.notes)}
        case answers.PreflightChecked(verdict):
            signal = {"signal": safe_name(verdict.signal), "value": verdict.value}
            return {"agree": verdict.rankings_agree, **signal, "depth": verdict.depth}
        case answers.SentencesSelected(sentences):
            return {"sentences": len(sentences)}
        case answers.ExamplesFound(ids, left_out):
            return {"examples": len(ids), "left_out": len(left_out)}
        case (
            answers.MapStarted() | answers.MapFinished() | answers.Voted() | answers.Drafted() | answers.AnswerStarted()
        ):
            return _step_fields(event)
        case answers.ModelCalled():
            reason = event.finish_reason
            known = reason in FINISH_REASONS or isinstance(getattr(errors, reason, None), type)
            return {
                "stage": safe_name(event.stage),
                "model": safe_name(event.model),
                "prompt_sha256": safe_name(event.prompt_sha256),
                "template": safe_name(event.template),
                "seed": event.seed,
                "sample": event.sample,
                "finish_reason": reason if known else "other",
                "usage": asdict(event.usage),
            }
        case answers.Notice(kind, _):
            return {"kind": safe_name(kind)}
        case answers.Answered(answer):
            return {
                "strategy": safe_name(answer.strategy),
                "state": safe_name(answer.state),
                "error": _failure_kind(answer.failure),
                "withheld": answer.withheld is not None,
                "citations": len(answer.citations),
                "verified": sum(citation.verified for citation in answer.citations),
                "partials": len(answer.partials),
                "votes": len(answer.votes),
                "drafts": len(answer.drafts),
                "usage": asdict(answer.usage),
            }
        case answers.TextDelta():
            return {}
        case _:
            assert_never(event)


def _step_fields(
    event: answers.MapStarted | answers.MapFinished | answers.Voted | answers.Drafted | answers.AnswerStarted,
) -> dict[str, Any]:
    match event:
        case answers.MapStarted(partition, passages):
            return {"partition": partition, "passages": len(passages)}
        case answers.MapFinished(partial):
            return {
                "partition": partial.partition,
                "passages": len(partial.passages),
                "state": safe_name(partial.state),
                "quotations": len(partial.quotations),
                "error": _failure_kind(partial.failure),
            }
        case answers.Voted(vote):
            return {"vote": vote.number, "state": safe_name(vote.state), "error": _failure_kind(vote.failure)}
        case answers.Drafted(draft):
            return {"draft": draft.number, "state": safe_name(draft.state), "error": _failure_kind(draft.failure)}
        case answers.AnswerStarted(stage, documents):
            return {"stage": safe_name(stage), "documents": documents}


def _failure_kind(failure: Failure | None) -> str | None:
    return None if failure is None else safe_name(failure.kind)


def safe_name(name: str) -> str:
    """Return the name if it looks like one, or `?`, as anything else may be a sentence."""
    return name if _NAME.fullmatch(name) else "?"


def _safe_key(question_key: str) -> str:
    """Return `id:hash`, or the hash alone if the id looks like a text."""
    if _NAME.fullmatch(question_key) and " " not in question_key:
        return question_key
    digest = question_key.rpartition(":")[2]
    return digest if _HASH.fullmatch(digest) else "?"
