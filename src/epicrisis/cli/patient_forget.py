"""`epicrisis patient forget`: remove patients for good, and prove it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.options import LOCAL, Json, LibraryPath
from epicrisis.cli.progress import open_progress
from epicrisis.cli.run_progress import confirm
from epicrisis.cli.terminal import say, show_json
from epicrisis.cli.users import server_folder
from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun
from epicrisis.system.remote_libraries import is_remote

if TYPE_CHECKING:
    from epicrisis.operations.forgetting.forgetting import ForgetReport, Places
    from epicrisis.settings.settings import Settings


@command(
    *LOCAL,
    examples=[
        "epicrisis patient forget ~/ward 10083814",
        "epicrisis patient forget ~/ward 10083814 10083815 --runs runs --folder /srv/epicrisis --yes",
    ],
)
def forget(
    library: LibraryPath,
    patients: Annotated[list[str], Argument(metavar="PATIENT...", help="Ids of the patients.")],
    runs: Annotated[
        list[Path] | None,
        Option("--runs", help="Folder of runs, or file of answers, to clean as well (repeatable). Default: runs."),
    ] = None,
    folder: Annotated[
        Path | None,
        Option(
            "--folder",
            help="Folder of a server to clean as well, or postgresql://OWNER@... of its state. Default: `server` in "
            "the data folder (EPICRISIS_HOME).",
        ),
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Forget them without asking first.")] = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Remove patients from a library, its runs and answers, and search all files for them at the end.

    Stop the server first. Notes, words, names, numbers, cached replies, records of runs, answers of the server, logs
    with texts and recorded calls are removed. Files that are only partly about these patients keep the rest. Before it
    asks, the command names what it cannot reach, such as backups. After an interruption, repeat the same command.
    """
    from epicrisis.operations.forgetting.forgetting import find_plan, forget_patients, list_outside
    from epicrisis.privacy.record_access import find_user
    from epicrisis.privacy.user_rights import find_rights

    rights = find_rights(library, flags.settings().home, find_user().account)
    if rights is not None:
        rights.require_administrator()
    places = _list_places(library, flags.settings(), runs, folder)
    say(f"note: not reached by this command: {'; '.join(list_outside(library, places))}", err=True)
    if find_plan(library) is None:
        names = ", ".join(str(place) for place in places.all) or "no folder of runs or of a server"
        question = f"forget {count_noun(len(set(patients)), 'patient')} in {library} for good (also in: {names})?"
        confirm(None if yes else question, "nothing was removed")
    with open_progress("step", quiet=json, transient=True) as progress:
        task = progress.add_task("Forgetting", total=None, step="")
        reader = find_user()
        report = forget_patients(library, patients, places, reader, lambda step: progress.update(task, step=step))
    if json:
        show_json(report)
    else:
        _show(report)
    if not report.is_clean:
        fail(
            "something of these patients is left, as listed above: remove it and repeat the command, which then "
            "searches again"
        )


def _list_places(library: Path, settings: Settings, runs: list[Path] | None, folder: Path | None) -> Places:
    """Return the folders and files to clean outside of the library."""
    from epicrisis.library.library_parts import REPLIES
    from epicrisis.operations.forgetting.forgetting import Places
    from epicrisis.privacy.record_access import locate_outside_log

    run_paths = [path.expanduser() for path in runs or ()]
    for path in run_paths:
        if not path.exists():
            raise InputError(f"there is no {path} to clean: correct --runs, or leave it out")
    paths = [Path("runs")] if runs is None else run_paths
    paths += [path for path in (settings.log, settings.record, settings.cache.path, settings.home / REPLIES) if path]
    existing = [path.expanduser() for path in paths if path.expanduser().exists()]
    server = server_folder(folder).expanduser()
    has_server = server.is_dir() or is_remote(server)
    if folder is not None and not has_server:
        raise InputError(f"there is no folder of a server at {folder}: correct --folder, or leave it out")
    log = locate_outside_log(library.absolute(), settings.home)
    return Places(tuple(existing), server if has_server else None, log if log.is_file() else None)


def _show(report: ForgetReport) -> None:
    say(f"{count_noun(report.patients, 'patient')} forgotten, {count_noun(report.documents, 'note')} removed")
    if report.lines or report.files:
        say(
            f"also removed: {count_noun(report.lines, 'line')} of records and logs, and "
            f"{count_noun(len(report.files), 'file')} deleted or shortened"
        )
    if report.log_entries:
        say(f"entries of access logs that name a pseudonym now: {report.log_entries:,}")
    say(
        f"{count_noun(report.scanned, 'file')} searched for {count_noun(report.names, 'name')} and "
        f"{count_noun(report.windows, 'window')} of text: {'nothing found' if report.is_clean else 'NOT CLEAN'}"
    )
    if report.shared:
        say(f"{count_noun(report.shared, 'name')} or windows are not searched for: other records contain them too")
    for match in report.remaining:
        remainder = (
            match.unreadable or f"{count_noun(match.names, 'name')}, {count_noun(match.texts, 'window')} of text"
        )
        say(f"  {match.path}: {remainder}")
    for problem in report.problems:
        say(f"  {problem}")
