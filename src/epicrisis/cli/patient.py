"""`epicrisis patient`: one patient's record in a library."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from epicrisis.cli.command import command
from epicrisis.cli.options import Json, LibraryPath
from epicrisis.cli.run_progress import confirm
from epicrisis.cli.terminal import say, show_json
from epicrisis.errors import InputError
from epicrisis.printable import count_noun


@command(examples=["epicrisis patient forget ~/ward 10083814"])
def forget(
    library: LibraryPath,
    patients: Annotated[list[str], Argument(metavar="PATIENT...", help="Ids of the patients.")],
    yes: Annotated[bool, Option("--yes", help="Forget them without asking first.")] = False,
    json: Json = False,
) -> None:
    """Remove patients from a library: notes, names, numbers, cached replies, and remnants of earlier versions."""
    from epicrisis.library.library import LibraryStore
    from epicrisis.library.patients import Roster
    from epicrisis.library.record_removal import find_documents, remove_records

    with LibraryStore.open(library, write=True) as store:
        unknown = sorted(set(patients) - Roster(store).patients().keys())
        if unknown:
            raise InputError(
                f"the library has no patient {', '.join(map(ascii, unknown))}: `epicrisis library patients` lists them"
            )
        documents = find_documents(store, patients)
        question = f"forget {count_noun(len(patients), 'patient')} with {count_noun(len(documents), 'note')}. Go on?"
        confirm(None if yes else question, "nothing was removed")
        remove_records(store, patients, documents, lambda text: False, lambda step: None)
        store.optimize()
    if json:
        show_json({"patients": len(patients), "documents": len(documents)})
    else:
        say(f"{count_noun(len(patients), 'patient')} forgotten, {count_noun(len(documents), 'note')} removed")
