"""The command `library measure-deidentification`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from epicrisis.cli.command import command
from epicrisis.cli.options import Json, LibraryPath
from epicrisis.cli.terminal import say, show_json

_UNUSUAL_NOTES = 5
"""Short notes, with one unusual identifier each, for one long note: each kind needs two hundred of them."""


@command(examples=["epicrisis library measure-deidentification ~/ward"])
def measure_deidentification(
    library: LibraryPath,
    notes: Annotated[
        int, Option("--notes", min=100, max=100_000, help="Long notes to generate, and five short ones for each.")
    ] = 2000,
    draw: Annotated[int, Option("--draw", help="Seed of the notes.")] = 0,
    json: Json = False,
) -> None:
    """Measure how many identifiers of generated notes are found, by kind, and record it for `ask --deidentify`.

    The worst kind decides. No note of the library is read. The notes are fictional, so real notes may have forms that
    they lack.
    """
    from epicrisis.evaluation.synthesis.deidentification_recall import (
        count_recall,
        count_unusual_recall,
        make_measurement,
    )
    from epicrisis.library.library import LibraryStore
    from epicrisis.privacy.deidentification.library_files import write_measurement
    from epicrisis.privacy.deidentification.presidio import load_recognizers

    load_recognizers()
    with LibraryStore.open(library) as store:
        folder = store.path
    unusual = count_unusual_recall(_UNUSUAL_NOTES * notes, draw, "held-out")
    measurement = make_measurement(count_recall(notes, draw), unusual)
    write_measurement(folder, measurement)
    if json:
        show_json({**measurement.model_dump(), "worst_kind": measurement.worst_kind})
        return
    for kind, row in sorted(measurement.kinds.items()):
        counts = f"{row.planted:7,} planted  {row.missed:5,} missed"
        say(f"{kind:44} {counts}  recall {row.recall:.4f} (at least {row.lower:.4f})")
    for kind, row in measurement.not_required.items():
        say(f"{kind}: not reached and not required, recall {row.recall:.4f} of {row.planted:,}")
    worst = measurement.kinds[measurement.worst_kind]
    say(
        f"worst kind, {measurement.worst_kind}: recall {worst.recall:.4f}, at least {worst.lower:.4f} with 95 % "
        f"confidence; precision {measurement.precision:.4f}; {measurement.notes_with_leak:,} of "
        f"{measurement.notes:,} notes with a leak"
    )
    say(f"recorded for {folder}: `ask --deidentify` accepts up to {worst.lower:.4f}")
