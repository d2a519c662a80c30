"""A resumable store of JSON lines: a process that was killed loses no line, and the next one continues the file.

class Reply(StoredLine):
    id: str
    text: str

    @property
    def identity(self) -> str:
        return self.id

store = JsonlStore(path, Reply, recipe, content="replies")
if "7" not in store.lines:
    store.append(Reply(recipe=store.recipe, id="7", text="Yes."))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError

from epicrisis.core.errors import InputError
from epicrisis.core.serialization import to_json
from epicrisis.system.json_lines import Line, acquire_lock, append_line, read_lines

_ABSENT = object()

OtherRecipePolicy: TypeAlias = Literal["refuse", "skip"]


class StoredLine(BaseModel, ABC):
    """One line of a store. Its fields are the keys on disk; a field with an alias is stored under the alias.

    Fields may be dataclasses of the package. Keys that the class does not have are ignored.
    """

    model_config = ConfigDict(populate_by_name=True, allow_inf_nan=False)

    recipe: dict[str, Any]
    """The settings that decide the other fields, as JSON data."""

    @property
    @abstractmethod
    def identity(self) -> Hashable:
        """The subject of the line. Of several lines with one identity, the last is valid."""

    def to_json(self) -> dict[str, Any]:
        """Return the line as JSON data, without fields that were not set."""
        value: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            if name in self.model_fields_set:
                value[field.alias or name] = to_json(getattr(self, name))
        return value


L = TypeVar("L", bound=StoredLine)


class JsonlStore(Generic[L]):
    """A file of lines of one type, made by one recipe. Only this process adds to it while the object exists."""

    def __init__(
        self,
        path: Path,
        line_type: type[L],
        recipe: Mapping[str, Any],
        *,
        content: str,
        other_recipes: OtherRecipePolicy = "refuse",
        lock: FileLock | None = None,
    ) -> None:
        """Lock the file and read the lines it has.

        `content` names the lines in error messages, in the plural. With `other_recipes="skip"`, lines of another recipe
        stay in the file and are ignored. `lock` is a lock that the caller already holds. Raises InputError if the file
        holds anything else or lines of another recipe, or if another process uses it.
        """
        self.path = path
        self.recipe: dict[str, Any] = to_json(recipe)
        self.lines: dict[Hashable, L] = {}
        """The valid line of each identity, in the order in which the identities first appear."""
        self._lock = lock or acquire_lock(path)
        for line in read_stored_lines(path, line_type, content):
            if line.recipe == self.recipe:
                self.remember(line)
            elif other_recipes == "refuse":
                raise InputError(
                    f"{path} holds {content} made with other settings ({list_changes(line.recipe, self.recipe)}): use "
                    "the same settings, or choose another file with -o"
                )

    def remember(self, line: L) -> None:
        """Take into account a line that is in the file. Subclasses override this to keep totals, or to keep less."""
        self.lines[line.identity] = line

    def append(self, line: L) -> None:
        """Append a line. It is on the disk when this returns. Raises StorageError if the disk refuses it."""
        append_line(self.path, line.to_json())
        self.remember(line)


def list_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Return the dotted names of the values in which two recipes or plans differ, sorted: `library, settings.k`."""
    return ", ".join(_changed_names(old, new))


def _changed_names(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name in sorted({*old, *new}):
        before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changed_names(before, after, f"{prefix}{name}.")
        elif before != after:
            yield f"{prefix}{name}"


def read_stored_lines(path: Path, line_type: type[L], content: str) -> Iterator[L]:
    """Yield every line of a file in its order, superseded ones included; nothing if there is no file.

    Raises InputError for a line that is not of this type, and as `read_lines` does.
    """
    for line in read_lines(path):
        yield parse_line(path, line, line_type, content)


def parse_line(path: Path, line: Line, line_type: type[L], content: str) -> L:
    """Return the line as an instance of its type. Raises InputError, without quoting the line."""
    try:
        return line_type.model_validate(line.value)
    except ValidationError:
        raise InputError(
            f"{path}, line {line.number}, does not belong to a file of {content}: repair or remove the line, or choose "
            "another file"
        ) from None
