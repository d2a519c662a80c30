"""Items in a folder: each is a folder of its own with some files, written once, and logs of JSON lines.

The same in a database is `shared_state.items.ItemTable`, with the same methods.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from epicrisis.system.json_lines import append_line, read_lines
from epicrisis.system.local_only import replace_file


class ItemFolder:
    """Items below one folder, readable for their owner alone. Callers check ids before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, id_: str, parts: Mapping[str, bytes]) -> None:
        """Keep a new item. The last part is written last: without it there is no such item. Raises OSError."""
        folder = self._folder / id_
        folder.mkdir(mode=0o700, parents=True)
        for name, content in parts.items():
            replace_file(folder / name, (folder / name).with_suffix(".part"), [content])

    def ids(self, part: str) -> list[str]:
        """Return the ids of the items with this part."""
        return [path.parent.name for path in self._folder.glob(f"*/{part}")]

    def has(self, id_: str, part: str) -> bool:
        """Return whether the item has this part."""
        return (self._folder / id_ / part).exists()

    def read(self, id_: str, part: str) -> bytes | None:
        """Return a part of an item, or None without it."""
        try:
            return (self._folder / id_ / part).read_bytes()
        except FileNotFoundError:
            return None

    def append(self, id_: str, log: str, value: Mapping[str, Any]) -> None:
        """Append a line to a log of the item. It is on the disk when this returns. Raises StorageError."""
        append_line(self._folder / id_ / log, value)

    def lines(self, id_: str, log: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of a log. Raises InputError for a damaged one."""
        for line in read_lines(self._folder / id_ / log):
            yield line.value

    def remove(self, id_: str, last_part: str) -> None:
        """Delete an item, its last part first. Raises OSError."""
        (self._folder / id_ / last_part).unlink(missing_ok=True)
        shutil.rmtree(self._folder / id_)

    @contextmanager
    def locked(self, id_: str) -> Iterator[None]:
        """Lock an item against other writers."""
        # Not in the folder of the item, which may be deleted while another process waits.
        with FileLock(self._folder / f"{id_}.lock", mode=0o600):
            yield
