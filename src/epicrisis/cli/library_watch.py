"""`epicrisis library add --watch`: add the files of folders as they appear or change, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from epicrisis.cli.progress import describe_counts, show_ingest
from epicrisis.cli.run_progress import say_remarks, say_skipped
from epicrisis.cli.terminal import say, show_json
from epicrisis.core.errors import EpicrisisError, InputError, LibraryBusy, LibraryError, StorageError
from epicrisis.core.printable import count_noun
from epicrisis.corpus.base.reader_base import is_visible

if TYPE_CHECKING:
    from epicrisis.core.protocols import Encoder
    from epicrisis.library.write.ingest_batches import IngestReport
    from epicrisis.pipeline.additions import AddOptions
    from epicrisis.settings.settings import Settings


class _Stamp(NamedTuple):
    size: int
    modified: int


class FolderWatch:
    """Remembers which files were taken, by size and time of modification.

    A file is ready if two scans saw it unchanged, or if it was last modified `settle_seconds` before its first scan.
    Hidden files and empty files are never ready: programs create files so before they write them.
    """

    def __init__(self, folders: Sequence[Path], settle_seconds: float, now: Callable[[], float] = time.time) -> None:
        self._folders = folders
        self._settle = settle_seconds
        self._now = now
        self._last: dict[Path, _Stamp] = {}
        self._taken: dict[Path, _Stamp] = {}
        self.gone: set[Path] = set()
        """The files that were taken and are no longer there."""
        self.closed: dict[Path, OSError] = {}
        """The folders that the last scan could not list."""

    def scan(self) -> list[Path]:
        """Return the files that are ready and not taken yet, sorted. They count as taken once `take` is called."""
        present: dict[Path, _Stamp] = {}
        ready = []
        self.closed = {}
        for path, stamp in self._list_files():
            present[path] = stamp
            is_first = path not in self._last
            is_old = is_first and self._now() - stamp.modified / 1e9 >= self._settle
            if stamp.size and self._taken.get(path) != stamp and (is_old or self._last.get(path) == stamp):
                ready.append(path)
        self._last = present
        self.gone = set(self._taken).difference(present)
        return sorted(ready)

    def take(self, paths: Sequence[Path]) -> None:
        """Remember that these files were read in the state of the last scan."""
        for path in paths:
            self._taken[path] = self._last[path]

    @property
    def waiting(self) -> int:
        """Return how many files of the last scan are not taken yet, such as growing ones."""
        return sum(stamp.size > 0 and self._taken.get(path) != stamp for path, stamp in self._last.items())

    def _list_files(self) -> Iterator[tuple[Path, _Stamp]]:
        for folder in self._folders:
            for parent, folders, names in os.walk(folder, onerror=self._note_closed):
                folders[:] = [name for name in folders if not name.startswith(".")]
                for name in names:
                    if is_visible(name):
                        # A file may disappear between listing and looking.
                        with suppress(OSError):
                            status = os.stat(Path(parent, name))
                            yield Path(parent, name), _Stamp(status.st_size, status.st_mtime_ns)

    def _note_closed(self, error: OSError) -> None:
        self.closed[Path(error.filename)] = error


SCAN_SECONDS = 2.0
"""Seconds between two scans of the folders. A scan that takes long is followed by a longer pause."""
_PAUSE_PER_SCAN = 10
_COUNTS = ("added", "replaced", "unchanged", "skipped", "passages")


def watch_folders(
    settings: Settings, library: Path, folders: Sequence[Path], options: AddOptions, *, json: bool
) -> None:
    """Add the files of the folders, then new and changed ones, until the user stops it.

    The library is free for other writers between two additions. Unreadable files are named once, and read again when
    they change. Documents of deleted files stay. Raises InputError for a path that is not a folder, and the
    errors of the first addition.
    """
    from epicrisis.pipeline.components import load_ingest_encoder

    if not folders:
        raise InputError("--watch: name the folders to watch")
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--watch: {folder} is not a folder; name an existing one")
    encoder = load_ingest_encoder(settings, library, False)
    watcher = _Watcher(settings, library, folders, options, encoder, json)
    try:
        watcher.run()
    except KeyboardInterrupt:
        watcher.say_end()


class _Watcher:
    """Adds files to one library, and counts what was done."""

    def __init__(
        self,
        settings: Settings,
        library: Path,
        folders: Sequence[Path],
        options: AddOptions,
        encoder: tuple[Encoder, str],
        json: bool,
    ) -> None:

        self._settings, self._library, self._folders, self._options = settings, library, folders, options
        self._encoder, self._json = encoder, json
        self._watch = FolderWatch(folders, SCAN_SECONDS)
        self._totals = dict.fromkeys(_COUNTS, 0)
        self._has_added = False
        self._closed: set[Path] = set()
        self._last_error = ""

    def run(self) -> None:
        """Scan and add until Ctrl-C."""
        say(f"watching {', '.join(map(str, self._folders))}; Ctrl-C ends", err=True)
        while True:
            started = time.monotonic()
            ready = self._watch.scan()
            self._say_closed()
            pause = max(SCAN_SECONDS, _PAUSE_PER_SCAN * (time.monotonic() - started))
            if ready:
                self._try(ready)
            time.sleep(pause)

    def _say_closed(self) -> None:
        """Warn once of each folder that cannot be listed."""
        from epicrisis.corpus.base.reader_base import os_error_reason

        for folder, error in self._watch.closed.items():
            if folder not in self._closed:
                _say_now(f"warning: {folder}: {os_error_reason(error)}; check the folder's permissions, or mount it")
        self._closed = set(self._watch.closed)

    def _try(self, ready: Sequence[Path]) -> None:
        """Add the files that are ready. Raises the errors of the first addition, and prints later ones.

        Files are tried again if the library could not take them. If one of several files is refused, each is tried
        alone.
        """
        try:
            report = self._add(ready)
        except LibraryBusy:
            _say_now("another program writes to the library: trying again")
            return
        except (LibraryError, StorageError) as error:
            if not self._has_added:
                raise
            if error.message != self._last_error:
                _say_now(f"warning: {count_noun(len(ready), 'file')} not added: {error.message}; trying again")
            self._last_error = error.message
            return
        except EpicrisisError as error:
            if not self._has_added:
                raise
            if len(ready) > 1:
                for path in ready:
                    self._try([path])
                return
            self._watch.take(ready)
            _say_now(f"warning: {ready[0].name} not added: {error.message}")
        else:
            self._has_added, self._last_error = True, ""
            self._watch.take(ready)
            self._say_report(ready, report)

    def _add(self, ready: Sequence[Path]) -> IngestReport:
        from epicrisis.corpus.base.removal_log import RemovalLog
        from epicrisis.pipeline.additions import add_files

        cleaning = replace(self._options.cleaning, removal_log=RemovalLog(keep_texts=True))
        with show_ingest("Adding", quiet=self._json) as display:
            return add_files(
                self._settings,
                self._library,
                self._folders,
                replace(self._options, cleaning=cleaning),
                display.show,
                encoder=self._encoder,
                files=display.files,
                only=frozenset(ready),
            )

    def _say_report(self, ready: Sequence[Path], report: IngestReport) -> None:
        from epicrisis.library.base.skipped_items import SKIPPED_FILE

        for name in _COUNTS:
            self._totals[name] += getattr(report, name)
        others = f" and {len(ready) - 1:,} more" if len(ready) > 1 else ""
        counts = {"replaced": report.replaced, "unchanged": report.unchanged, "skipped": report.skipped}
        _say_now(f"{ready[0].name}{others}: {describe_counts(report.added, counts)}")
        say_remarks(report)
        say_skipped(report.reasons, self._library / SKIPPED_FILE)

    def say_end(self) -> None:
        """Print the totals, and the files that remain."""
        totals, waiting, gone = self._totals, self._watch.waiting, self._watch.gone
        if self._json:
            show_json({**totals, "waiting": waiting, "gone": sorted(map(str, gone))})
            return
        counts = {name: totals[name] for name in ("replaced", "unchanged", "skipped")}
        say(f"stopped watching: {describe_counts(totals['added'], counts)}")
        if waiting:
            say(f"{count_noun(waiting, 'file')} not added yet: the same command continues with them")
        if gone:
            stay = "their documents stay: `epicrisis library delete` removes them"
            say(f"{count_noun(len(gone), 'file')} no longer there; {stay}")


def _say_now(text: str) -> None:
    say(f"{datetime.now():%H:%M:%S} {text}", err=True)
