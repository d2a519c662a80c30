"""Events and answers as text on a terminal.

Plain lines if standard output is not a terminal; colour is never the only carrier of meaning. Texts of documents and
models are made printable, and their further lines begin with `GUTTER`, so that none can pass for a citation.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from epicrisis.cli.run_progress import usage_line
from epicrisis.cli.terminal import open_console
from epicrisis.core.answers import (
    Answer,
    Answered,
    AnswerStarted,
    Drafted,
    Event,
    ExamplesFound,
    MapFinished,
    MapStarted,
    Notice,
    PartialAnswer,
    PreflightChecked,
    Retrieved,
    SentencesSelected,
    TextDelta,
    Vote,
    Voted,
)
from epicrisis.core.printable import GUTTER, count_noun, printable, split_printable_lines
from epicrisis.core.types import ArticleMark, CitationStyle, Preflight, Ranking

SNIPPET = 90
MAX_IDS = 5
"""Ids of a ranking shown by the preflight check."""


class EventDisplay:
    """Prints events as they happen, on standard output."""

    def __init__(self, console: Console | None = None, style: CitationStyle | None = None) -> None:
        """Create a display. `style`: also show the sources of the answer in this citation style."""
        self._style = style
        self._console = console or open_console()
        self._streaming = False
        self._column = 0
        """Column after the last streamed character."""
        self._notices: set[str] = set()
        """Notices of a search that were shown before its ranking."""

    def show(self, event: Event) -> None:
        """Show one event."""
        if self._streaming and not isinstance(event, TextDelta):
            self._console.print()
            self._streaming = False
        match event:
            case Retrieved():
                self.ranking(event.ranking)
            case AnswerStarted():
                name, source = _describe_start(event)
                self._console.print(f"[bold]{name}[/bold]{source}: ", end="")
                self._column = cell_len(f"{name}{source}: ")
                self._streaming = True
            case TextDelta():
                self._delta(event)
            case Notice():
                self._say("note: ", event.message, "yellow")
                if event.kind == "search":
                    self._notices.add(event.message)
            case Answered():
                self._console.print()
                self.show_answer(event.answer, verbose=True)
            case _:
                self._step(event)

    def _step(self, event: Event) -> None:
        """Show a step on the way to the answer. Calls of models are not shown."""
        match event:
            case PreflightChecked():
                self._preflight(event.verdict)
            case SentencesSelected():
                documents = count_noun(len({span.document_id for span in event.sentences}), "document")
                self._say(f"[bold]Selected[/bold] {count_noun(len(event.sentences), 'sentence')} of {documents}")
            case ExamplesFound():
                ids = ", ".join(map(printable, event.ids))
                self._say(f"[bold]Shows[/bold] {count_noun(len(event.ids), 'solved question')}: ", ids)
                if event.left_out:
                    self._line(f"  left out because they are this question: {', '.join(event.left_out)}")
            case Voted():
                self._vote(event.vote)
            case Drafted():
                draft = event.draft
                head = f"[bold]Draft {draft.number + 1}[/bold]"
                if draft.text:
                    self._say(f"{head}: ", draft.text)
                else:
                    self._say(f"{head} {draft.state}", f": {draft.failure.message}" if draft.failure else "")
            case MapStarted():
                size = count_noun(len(event.passages), "passage") + _describe_numbers(event)
                self._say(f"[bold]Map {event.partition + 1}[/bold] reads {size}")
            case MapFinished():
                self._partial_answer(event.partial)

    def ranking(self, ranking: Ranking) -> None:
        """Show the hits with rank, score, and title or beginning of the text."""
        size = f"{count_noun(len(ranking.hits), 'passage')}"
        if "documents" in ranking.parameters:
            size += f" of {count_noun(ranking.parameters['documents'], 'document')}"
        self._say(f"[bold]Found by {escape(ranking.retriever)}[/bold]: {size}")
        for note in ranking.notes:
            if note not in self._notices:
                self._line(f"  note: {note}")
        self._notices.clear()
        for hit in ranking.hits:
            passage = hit.passage
            marks = f"  [{_describe_marks(passage.marks)}]" if passage.marks else ""
            self._line(f"{hit.rank + 1:>4}  {hit.score:.4f}  {passage.id}{marks}")
            date = f" ({passage.date})" if passage.date else ""
            source = f", {passage.source}" if passage.source and "beside" in ranking.parameters else ""
            self._line(f"              {_snippet(passage.title or passage.text)}{date}{source}")

    def _line(self, text: str) -> None:
        """Print a line of ids, titles and the like, without markup. Line breaks become spaces."""
        self._print(Text(printable(text)))

    def _say(self, head: str, text: str = "", style: str = "") -> None:
        """Print the program's words (markup), then a text of others, with its further lines below."""
        first, *rest = split_printable_lines(text)
        self._print(Text.from_markup(f"{head}{escape(first)}", style=style, emoji=False))
        for line in rest:
            self._print(Text(f"{GUTTER}{line}", style=style))

    def _print(self, line: Text) -> None:
        """Print one line. On a terminal it wraps, and further lines begin with the gutter, as far right as the line."""
        if not self._console.is_terminal:
            self._console.print(line, soft_wrap=True)
            return
        indentation = len(line.plain) - len(line.plain.lstrip(" "))
        gutter = " " * max(0, indentation - len(GUTTER) + len(GUTTER.lstrip(" "))) + GUTTER
        room = max(self._console.width - len(gutter), 20)
        for place, part in enumerate(line.wrap(self._console, room)):
            part.rstrip()
            self._console.print(Text(gutter if place else "") + part, soft_wrap=True)

    def _preflight(self, verdict: Preflight) -> None:
        self._say("[bold]Preflight[/bold]: ", verdict.reason)
        self._line(f"  dense: {_first_ids(verdict.dense_top)}")
        if verdict.signal in ("overlap", "rank-biased-overlap", "bm25-gap"):
            self._line(f"  BM25:  {_first_ids(verdict.bm25_top)}")
        elif verdict.signal == "reranker-overlap":
            self._line(f"  reranker: {_first_ids(verdict.reranked_top)}")

    def _partial_answer(self, partial: PartialAnswer) -> None:
        head = f"[bold]Map {partial.partition + 1}[/bold]"
        if partial.is_unread:
            problem = "failed" if partial.state == "failed" else "has a reply that cannot be read"
            self._say(f"{head} {problem}: ", partial.failure.message if partial.failure else "no reason given")
        elif partial.state == "nothing":
            self._say(f"{head} found nothing relevant")
        else:
            choice = f" ({escape(partial.choice)})" if partial.choice else ""
            points = "" if partial.confidence is None else f", confidence {partial.confidence:g} of 5"
            self._say(f"{head} found{choice}{points}: ", partial.text)

    def _vote(self, vote: Vote) -> None:
        head = f"[bold]Vote {vote.number + 1}[/bold]"
        order = ""
        if list(vote.letter_order) != sorted(vote.letter_order):
            order = f" (shown as {''.join(vote.letter_order)})"
        if vote.state == "answered":
            self._say(f"{head}{order}: {vote.choice}. ", _snippet(vote.text))
        else:
            self._say(f"{head}{order} {vote.state}", f": {vote.failure.message}" if vote.failure else "")

    def _delta(self, event: TextDelta) -> None:
        """Print a piece of the reply, wrapped to the terminal."""
        width = self._console.width if self._console.is_terminal else None
        pieces: list[str] = []
        for place, line in enumerate(split_printable_lines(event.text)):
            if place:
                self._column = len(GUTTER)
                pieces.append(f"\n{GUTTER}")
            for character in line:
                if width is not None and self._column + cell_len(character) > width:
                    self._column = len(GUTTER)
                    pieces.append(f"\n{GUTTER}")
                self._column += cell_len(character)
                pieces.append(character)
        self._console.print(Text("".join(pieces)), end="", soft_wrap=True)
        self._streaming = True

    def show_answer(self, answer: Answer, *, quiet: bool = False, verbose: bool = False) -> None:
        """Show the answer: verdict and claims, and unless `quiet` the sources, disagreements and gaps.

        With `verbose` also every sentence with its place in the document, and the usage.
        """
        from epicrisis.report.answer_text import build_screen_content, lay_out

        references = None
        if self._style is not None:
            from epicrisis.report.citation_styles import list_answer_references

            references = list_answer_references(answer, self._style)
        for line in lay_out(build_screen_content(answer, references, verbose=verbose), quiet=quiet):
            text = Text(printable(line.text))
            text.stylize(line.style, 0, line.styled)
            self._print(text)
        if answer.citations and not verbose and not quiet:
            self._console.print()
            self._say("[dim]-v shows every sentence, where it stands, and the steps[/dim]")
        if verbose:
            self._console.print()
            self._say(f"[dim]{usage_line(answer.usage)}[/dim]")


def describe_path(answer: Answer) -> list[str]:
    """Return the steps that led to the answer, one printable line each, with its cost as the last one."""
    out = io.StringIO()
    display = EventDisplay(open_console(file=out))
    for event in answer.trace:
        if isinstance(event, AnswerStarted):
            # Traces have no streamed text.
            out.write("".join(_describe_start(event)) + "\n")
        else:
            display.show(event)
    return [*out.getvalue().splitlines(), usage_line(answer.usage)]


def _describe_start(event: AnswerStarted) -> tuple[str, str]:
    """Return the name of the call for the answer, and what it reads, such as ` over 4 passages`."""
    name = {"reduce": "Reduce", "rag": "RAG"}.get(event.stage, event.stage)
    noun = {"reduce": "finding", "rag": "passage"}.get(event.stage, "solved question")
    source = f" over {count_noun(event.documents, noun)}" if event.documents else ""
    return name, source + _describe_numbers(event)


def _describe_numbers(event: MapStarted | AnswerStarted) -> str:
    """Return how many sentences the reply may cite by number, and their selector; empty for a reply with quotations."""
    if not event.sentences:
        return ""
    selectors = {
        "ranker": ", selected by the evidence ranker",
        "encoder": ", selected by the encoder",
        "words": ", selected by words",
        None: "",
    }
    return f" ({count_noun(event.sentences, 'numbered sentence')}{selectors[event.selected_by]})"


def _first_ids(ids: Sequence[str]) -> str:
    """Return the first ids and the number of the others, or `(nothing)`."""
    others = f" and {len(ids) - MAX_IDS} more" if len(ids) > MAX_IDS else ""
    return f"{', '.join(ids[:MAX_IDS])}{others}" if ids else "(nothing)"


def _describe_marks(marks: Iterable[ArticleMark]) -> str:
    from epicrisis.report.answer_content import describe_marks

    return describe_marks(marks)


def _snippet(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= SNIPPET else line[: SNIPPET - 1] + "…"
