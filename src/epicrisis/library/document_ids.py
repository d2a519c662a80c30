"""The document ids of files: find out whether a file is new, a version of a document in the library, or a copy.

A document with an id made from its file's name is replaced only by the file at the same path, or by a file with the
same content after that path has lost it (the folder was moved). Another file with the same name gets a different id. A
copy gets the id of the original. A document with its own id is replaced only by the same file, or with `replace`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from epicrisis.corpus.reader_base import FileDocument, fingerprint_file, printable_path
from epicrisis.errors import InputError
from epicrisis.library.ingest_report import IngestCounts
from epicrisis.library.library import Library
from epicrisis.types import Origin

_MIN_DIGITS = 8


@dataclass(frozen=True, slots=True)
class DocumentCopy:
    """A copy of a file in the library."""

    name: str
    """The file's name in the library."""


class FileDocumentIds:
    """Resolves the ids of documents from files during one ingestion."""

    def __init__(self, library: Library, counts: IngestCounts, replace: bool) -> None:
        self._library = library
        self._counts = counts
        self._replace = replace
        self._by_path: dict[str, str | DocumentCopy] = {}
        self._by_name: dict[str, Origin] = {}
        self._by_content: dict[str, Origin] = {}

    def resolve(self, item: FileDocument) -> FileDocument | DocumentCopy:
        """Return the document with the id of its file in the library."""
        origin = item.origin
        if origin.path not in self._by_path:
            name = self._choose_name(origin)
            self._by_path[origin.path] = name
            if isinstance(name, DocumentCopy):
                self._counts.add_remark(f"{printable_path(origin.path)}: already there as file:{name.name}")
            else:
                renamed = dataclasses.replace(origin, name=name)
                self._by_name[name] = renamed
                self._by_content.setdefault(origin.sha256, renamed)
        name = self._by_path[origin.path]
        if isinstance(name, DocumentCopy):
            return name
        document, old = item.document, origin.name
        if name != old:
            source = document.source
            document = dataclasses.replace(
                document,
                id=f"file:{name}{document.id.removeprefix(f'file:{old}')}",
                source=name + source.removeprefix(old) if source.startswith(old) else source,
                # A document without its own title has the file's name as its title.
                title=Path(name).stem if document.title == Path(old).stem else document.title,
            )
        return FileDocument(document, dataclasses.replace(origin, name=name))

    def find_fault(self, origin: Origin, existing: Origin | None) -> str | None:
        """Return why a document may not replace the one of its id from file `existing`, or None if it may."""
        if self._replace or existing is None or origin.path == existing.path:
            return None
        if origin.name and origin.sha256 == existing.sha256:
            return None
        other = printable_path(Path(existing.path).name)
        return (
            f"same id as a document of another file ({other}), but another text: pass --replace to replace it, or give "
            "this document its own id"
        )

    def is_better(self, origin: Origin, existing: Origin | None) -> bool:
        """Return whether `origin` should replace the recorded file of an unchanged document."""
        if existing is None or origin.name or origin.path == existing.path:
            return origin != existing
        return not Path(existing.path).is_file()

    def _choose_name(self, origin: Origin) -> str | DocumentCopy:
        at_path = self._library.find_origin(path=origin.path)
        if at_path is not None and at_path.name not in self._by_name:
            return at_path.name
        same = self._by_content.get(origin.sha256)
        if same is None:
            stored = self._library.find_origin(sha256=origin.sha256)
            # Another file of this ingestion may have taken the name, with its document not yet committed.
            same = stored if stored is not None and stored.name not in self._by_name else None
        if same is not None:
            path = Path(same.path)
            try:
                still_exists = path.is_file() and fingerprint_file(path).sha256 == same.sha256
            except (InputError, OSError):
                still_exists = True
            return DocumentCopy(same.name) if still_exists else same.name
        if not self._is_taken(origin.name):
            return origin.name
        digits = _MIN_DIGITS
        while self._is_taken(name := f"{origin.name}~{origin.sha256[:digits]}"):
            digits += 1
        self._counts.add_remark(
            f"{printable_path(origin.path)}: file:{origin.name} is another file, so this one is file:{name}; if it is "
            "a new version of that file, delete this one and add it with --replace"
        )
        return name

    def _is_taken(self, name: str) -> bool:
        """Return whether another file, or a document of a file with many documents, has this name.

        A document without a recorded file, in a library of an earlier version, is assumed to be from this file.
        """
        if name in self._by_name:
            return True
        id_ = f"file:{name}"
        exists = id_ in self._library.content_hashes([id_])
        return exists and not self._replace and id_ in self._library.origins([id_])
