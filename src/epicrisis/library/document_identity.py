"""Which document of a library a document from a file is: a new one, the successor of one that is there, or another's.

A document is replaced by its successor alone. The successor of one whose id is made of a file's name comes from the
file at the same path, or from a file of the same content where that path no longer has it (the folder was moved). A
file of the same name elsewhere gets an id of its own; a copy is the document that is there. The successor of one that
has an id of its own comes from the same file, or is said to be one (`replace`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from epicrisis.corpus.reader_base import FileDocument, fingerprint_file, printable_path
from epicrisis.errors import InputError
from epicrisis.library.ingest_report import SHOWN
from epicrisis.library.library import Library
from epicrisis.types import Document, Origin

_FEW_DIGITS = 8


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """A copy of a file that is in the library: the name it has there."""

    name: str


class Identities:
    """Finds the ids of one addition's documents that come from files."""

    def __init__(self, library: Library, replace: bool) -> None:
        self._library = library
        self._replace = replace
        self._by_path: dict[str, str] = {}
        self._by_name: dict[str, Origin] = {}
        self._by_content: dict[str, Origin] = {}
        self._copies: dict[str, AlreadyThere] = {}
        self.remarks: list[str] = []
        """The first things to tell of files whose names were taken, or whose content was there."""
        self.more_remarks = 0

    def named(self, item: FileDocument) -> FileDocument | AlreadyThere:
        """Return the document with the id that the file has, or will have, in the library."""
        origin = item.origin
        if (copy := self._copies.get(origin.path)) is not None:
            return copy
        name = self._by_path.get(origin.path)
        if name is None:
            found = self._name(origin)
            if isinstance(found, AlreadyThere):
                self._remark(f"{printable_path(origin.path)}: already there as file:{found.name}")
                self._copies[origin.path] = found
                return found
            name = found
            mine = dataclasses.replace(origin, name=name)
            self._by_path[origin.path] = name
            self._by_name[name] = mine
            self._by_content.setdefault(origin.sha256, mine)
        return FileDocument(_renamed(item.document, origin.name, name), dataclasses.replace(origin, name=name))

    def refusal(self, document: Document, origin: Origin, known: Origin | None) -> str | None:
        """Say why a document may not replace the one of its id, whose file is `known`; None where it may."""
        if self._replace or known is None or origin.path == known.path:
            return None
        if origin.name and origin.sha256 == known.sha256:
            return None
        other = printable_path(Path(known.path).name)
        return (
            f"same id as a document of another file ({other}), with another text: give --replace to put this one in "
            "its place, or give it an id of its own"
        )

    def is_news(self, origin: Origin, known: Origin | None) -> bool:
        """Tell whether a document of unchanged content is to be known by this file instead of the `known` one."""
        if known is None or origin.name or origin.path == known.path:
            return origin != known
        return not Path(known.path).is_file()

    def _remark(self, text: str) -> None:
        if len(self.remarks) < SHOWN:
            self.remarks.append(text)
        else:
            self.more_remarks += 1

    def _name(self, origin: Origin) -> str | AlreadyThere:
        there = self._library.named_at(origin.path)
        if there is not None and there.name not in self._by_name:
            return there.name
        same = self._by_content.get(origin.sha256)
        if same is None:
            known = self._library.named_with(origin.sha256)
            # Another file of this addition has the name by now, and the document waits for its commit.
            same = known if known is not None and known.name not in self._by_name else None
        if same is not None:
            return AlreadyThere(same.name) if _holds(same) else same.name
        if not self._is_taken(origin.name):
            return origin.name
        digits = _FEW_DIGITS
        while self._is_taken(name := f"{origin.name}~{origin.sha256[:digits]}"):
            digits += 1
        self._remark(
            f"{printable_path(origin.path)}: file:{origin.name} is another file, so this one is file:{name}; if it is a new "
            "version of that one, delete this one and add it with --replace"
        )
        return name

    def _is_taken(self, name: str) -> bool:
        """Tell whether another file, or a document of a file of many, has this name.

        A document whose file is not known, from a library of an earlier version, is taken for this file's.
        """
        if name in self._by_name:
            return True
        id_ = f"file:{name}"
        there = id_ in self._library.content_hashes([id_])
        return there and not self._replace and id_ in self._library.origins([id_])


def _holds(origin: Origin) -> bool:
    """Tell whether the file is still where it was, with the same content; True where that cannot be seen."""
    path = Path(origin.path)
    try:
        return path.is_file() and fingerprint_file(path).sha256 == origin.sha256
    except (InputError, OSError):
        return True


def _renamed(document: Document, old: str, new: str) -> Document:
    if old == new:
        return document
    id_ = f"file:{new}{document.id.removeprefix(f'file:{old}')}"
    source = new + document.source.removeprefix(old) if document.source.startswith(old) else document.source
    # What has no title of its own has the file's: it is the same file, whatever link or folder led to it.
    title = Path(new).stem if document.title == Path(old).stem else document.title
    return dataclasses.replace(document, id=id_, source=source, title=title)
