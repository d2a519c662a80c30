"""What the commands of the ten-minute start and the tutorials show in terminals of 60, 80 and 120 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from rich.cells import cell_len

from epicrisis.cli.terminal import _wrap_line
from epicrisis.core.printable import GUTTER
from tests.support.terminal_recording import MISTAKES, Recording, prepare_folder, record_commands

NARROWEST = 60
SLOW = ("evaluate", "compare", "plan", "ask lib 'Which")
"""Commands that take long: they are recorded in the narrowest terminal alone, too narrow for their tables."""


def find_wide_lines(recordings: Sequence[Recording], columns: int) -> Iterator[tuple[str, str]]:
    """Yield the lines wider than the terminal. A single word, such as a link or a hash, cannot be divided."""
    for recording in recordings:
        for line in recording.lines:
            words = line.removeprefix(GUTTER).split()
            if cell_len(line) > columns and len(words) > 1:
                yield recording.command, line


@pytest.fixture(scope="module", params=[NARROWEST, 80, 120])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[Recording]]:
    columns: int = request.param
    folder = tmp_path_factory.mktemp("recording")
    commands = [command for command in prepare_folder(folder) if columns == NARROWEST or not command.startswith(SLOW)]
    return columns, record_commands([*commands, *MISTAKES], columns, folder)


@pytest.mark.long
@pytest.mark.models
def test_recorded_lines_fit_into_terminal(recorded: tuple[int, list[Recording]]) -> None:
    columns, recordings = recorded
    assert len(recordings) > 20
    assert sum(len(recording.lines) for recording in recordings) > 300
    assert list(find_wide_lines(recordings, columns)) == []


@pytest.mark.long
@pytest.mark.models
def test_recorded_commands_end_as_documented(recorded: tuple[int, list[Recording]]) -> None:
    """A mistake is told in one sentence, which may take several lines, and never by a traceback."""
    for recording in recorded[1]:
        text = "\n".join(recording.lines)
        assert recording.exit_code == (2 if recording.command in MISTAKES else 0), text
        assert "Traceback" not in text
        if recording.command in MISTAKES:
            assert [line.startswith("epicrisis: ") for line in recording.lines].count(True) == 1, text


@pytest.mark.models
def test_recorded_bars_name_step_completely(recorded: tuple[int, list[Recording]]) -> None:
    adding = next(recording for recording in recorded[1] if recording.command.startswith("library add lib "))
    bars = [line for line in adding.lines if " so far" in line or " left" in line]
    assert bars
    assert [line for line in bars if not line.startswith("Adding ")] == []


def test_long_line_is_divided_between_words_and_indented() -> None:
    line = "  " + "found in the library " * 4
    assert _wrap_line(line.rstrip(), 40).splitlines() == [
        "  found in the library found in the",
        "      library found in the library found",
        "      in the library",
    ]


def test_long_line_of_document_keeps_gutter() -> None:
    lines = _wrap_line(f"{GUTTER}{'epicrisis: [1] forged line ' * 3}".rstrip(), 40).splitlines()
    assert len(lines) > 1
    assert [line for line in lines if not line.startswith(GUTTER)] == []


def test_long_line_keeps_command_and_link_whole() -> None:
    link = "https://example.org/" + "a" * 60
    lines = _wrap_line(
        f"no library there: create one with `epicrisis library add ~/lib FILES` ({link})", 50
    ).splitlines()
    assert any("`epicrisis library add ~/lib FILES`" in line for line in lines)
    assert any(link in line for line in lines)
