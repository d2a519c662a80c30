"""The command `library measure-deidentification`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from epicrisis.cli.command import command
from epicrisis.cli.options import Json, LibraryPath
from epicrisis.cli.terminal import say, show_json


@command(examples=["epicrisis library measure-deidentification ~/ward"])
def measure_deidentification(
    library: LibraryPath,
    notes: Annotated[int, Option("--notes", min=100, max=100_000, help="Notes to generate.")] = 2000,
    draw: Annotated[int, Option("--draw", help="Seed of the notes.")] = 0,
    json: Json = False,
) -> None:
    """Measure how many identifiers of generated notes are found, and record it for `ask --deidentify`.

    No note of the library is read. The notes are fictional, so real notes may have forms that they lack.
    """
    from epicrisis.deidentification.library_files import write_measurement
    from epicrisis.deidentification.presidio import load_recognizers
    from epicrisis.evaluation.synthesis.deidentification_recall import count_recall, make_measurement
    from epicrisis.library.library import LibraryStore

    load_recognizers()
    with LibraryStore.open(library) as store:
        folder = store.path
    measurement = make_measurement(count_recall(notes, draw))
    write_measurement(folder, measurement)
    if json:
        show_json(measurement.model_dump())
        return
    for kind, row in sorted(measurement.kinds.items()):
        counts = f"{row.planted:7,} planted  {row.missed:5,} missed"
        say(f"{kind:14} {counts}  recall {row.recall:.4f} (at least {row.lower:.4f})")
    overall = measurement.overall
    say(
        f"recall {overall.recall:.4f}, at least {overall.lower:.4f} with 95 % confidence; precision "
        f"{measurement.precision:.4f}; {measurement.notes_with_leak:,} of {measurement.notes:,} notes with a leak"
    )
    say(f"recorded for {folder}: `ask --deidentify` accepts up to {overall.lower:.4f}")
