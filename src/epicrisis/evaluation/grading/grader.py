"""A judge's file: one reply a line, durable before it counts, found by what it is of, never by its place (errata P4).

A failed call is asked again by the next run, all else is final. Knows neither what is judged nor what a verdict is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args

from epicrisis.answers import Failure, Usage
from epicrisis.corpus.reader_base import check_file
from epicrisis.errors import InputError
from epicrisis.evaluation.runs.jsonl_store import acquire_lock, append_line, read_lines
from epicrisis.evaluation.runs.recipe_differences import list_changes
from epicrisis.serialization import to_json

GradeState: TypeAlias = Literal["judged", "unparsed", "failed"]
STATES: tuple[GradeState, ...] = get_args(GradeState)


class GraderReply(Protocol):
    """What came of one call, as a dataclass with these fields among others."""

    @property
    def key(self) -> Hashable:
        """What it is of."""

    @property
    def state(self) -> GradeState: ...

    @property
    def usage(self) -> Usage: ...


R = TypeVar("R", bound=GraderReply)

Reader: TypeAlias = Callable[..., R]
"""Makes a reply of its fields by name. Raises TypeError or ValueError where they are none."""


class GradeStore(Generic[R]):
    """The replies of one judge, this process's to add to while the object lives. Raises InputError where the file holds
    something else, those of another judge, or where another process is at work on it."""

    def __init__(self, path: Path, recipe: Mapping[str, Any], read: Reader[R]) -> None:
        self._path = path
        self._lock = acquire_lock(path)
        self._recipe = to_json(recipe)
        self.replies: dict[Hashable, R] = {}
        """The last one of each key."""
        self.usage = Usage()
        """Of all of them, failed ones included."""
        for made, reply in _parsed(path, read):
            if made != self._recipe:
                differ = list_changes(made, self._recipe)
                raise InputError(f"{path} holds verdicts made otherwise ({differ} differ): name another file")
            self._note(reply)

    def is_done(self, key: Hashable) -> bool:
        """Whether there is a reply that is not to be asked for again."""
        reply = self.replies.get(key)
        return reply is not None and reply.state != "failed"

    def append(self, reply: R) -> None:
        """Durable when it returns."""
        append_line(self._path, {"recipe": self._recipe, "reply": to_json(reply)})
        self._note(reply)

    def _note(self, reply: R) -> None:
        self.replies[reply.key] = reply
        self.usage += reply.usage


def read_grades(path: Path, read: Reader[R]) -> tuple[dict[str, Any], dict[Hashable, R]]:
    """A judge's recipe and the last reply of each key. Raises InputError where the file holds something else, or the
    replies of several judges."""
    check_file(path)
    parsed = list(_parsed(path, read))
    recipes = [made for made, _ in parsed]
    if not recipes or any(made != recipes[0] for made in recipes):
        raise InputError(f"{path} holds the verdicts of {'several judges' if recipes else 'nobody'}: name another file")
    return recipes[0], {reply.key: reply for _, reply in parsed}


def _parsed(path: Path, read: Reader[R]) -> Iterator[tuple[dict[str, Any], R]]:
    for line in read_lines(path):
        try:
            recipe, told = dict(line.value["recipe"]), dict(line.value["reply"])
            failure = None if told["failure"] is None else Failure(**told["failure"])
            reply = read(**{**told, "failure": failure, "usage": Usage(**told["usage"]) + Usage()})
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{path}, line {line.number}, is no verdict of a model: take the line out, or name another file"
            ) from None
        yield recipe, reply
