"""Events and answers as text on a terminal.

Plain lines if standard output is not a terminal; colour is never the only carrier of meaning. Texts of documents and
models are made printable, and their further lines begin with `GUTTER`, so that none can pass for a citation.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from epicrisis.answers import (
    Answer,
    Answered,
    AnswerStarted,
    Citation,
    Drafted,
    Event,
    ExamplesFound,
    MapFinished,
    MapStarted,
    Notice,
    PartialAnswer,
    PreflightChecked,
    Retrieved,
    TextDelta,
    Vote,
    Voted,
)
from epicrisis.cli.run_progress import usage_line
from epicrisis.cli.terminal import open_console
from epicrisis.printable import GUTTER, printable, split_printable_lines
from epicrisis.prompts import MARK_LABELS
from epicrisis.types import ArticleMark, Preflight, Ranking

SNIPPET = 90
MAX_IDS = 5
"""Ids of a ranking shown by the preflight check."""
_NARROWING = {
    "kept": "From the notes of the time in the question; --setting timeline=false reads the complete record.",
    "lifted": "From the complete record: the notes of the time in the question did not answer it.",
}


class EventDisplay:
    """Prints events as they happen, on standard output."""

    def __init__(self, console: Console | None = None) -> None:
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
                name = {"reduce": "Reduce", "rag": "RAG"}.get(event.stage, event.stage)
                kind = {"reduce": "findings", "rag": "passages"}.get(event.stage, "solved questions")
                source = f" over {event.documents} {kind}" if event.documents else ""
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
                self.answer(event.answer)
            case _:
                self._step(event)

    def _step(self, event: Event) -> None:
        """Show a step on the way to the answer. Calls of models are not shown."""
        match event:
            case PreflightChecked():
                self._preflight(event.verdict)
            case ExamplesFound():
                ids = ", ".join(map(printable, event.ids))
                self._say(f"[bold]Shows[/bold] {len(event.ids)} solved questions: ", ids)
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
                self._say(f"[bold]Map {event.partition + 1}[/bold] reads {len(event.passages)} passages")
            case MapFinished():
                self._partial_answer(event.partial)

    def ranking(self, ranking: Ranking) -> None:
        """Show the hits with rank, score, and title or beginning of the text."""
        size = f"{len(ranking.hits)} passages"
        if "documents" in ranking.parameters:
            size += f" of {ranking.parameters['documents']} documents"
        self._say(f"[bold]Found by {escape(ranking.retriever)}[/bold]: {size}")
        for note in ranking.notes:
            if note not in self._notices:
                self._line(f"  note: {note}")
        self._notices.clear()
        for hit in ranking.hits:
            passage = hit.passage
            marks = _marks(passage.marks)
            self._line(f"{hit.rank + 1:>4}  {hit.score:.4f}  {passage.id}{f'  {marks}' if marks else ''}")
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
        """Print one line. On a terminal it wraps, and further lines begin with the gutter."""
        if not self._console.is_terminal:
            self._console.print(line, soft_wrap=True)
            return
        room = max(self._console.width - len(GUTTER), 20)
        for place, part in enumerate(line.wrap(self._console, room)):
            self._console.print(Text(GUTTER if place else "") + part, soft_wrap=True)

    def _preflight(self, verdict: Preflight) -> None:
        self._say("[bold]Preflight[/bold]: ", verdict.reason)
        self._line(f"  dense: {_first_ids(verdict.dense_top)}")
        if verdict.signal in ("overlap", "rank-biased-overlap", "bm25-gap"):
            self._line(f"  BM25:  {_first_ids(verdict.bm25_top)}")
        elif verdict.signal == "reranker-overlap":
            self._line(f"  reranker: {_first_ids(verdict.reranked_top)}")

    def _partial_answer(self, partial: PartialAnswer) -> None:
        head = f"[bold]Map {partial.partition + 1}[/bold]"
        if partial.state == "failed":
            self._say(f"{head} failed: ", partial.failure.message if partial.failure else "no reason given")
        elif partial.state == "nothing":
            self._say(f"{head} found nothing relevant")
        else:
            choice = f" ({escape(partial.choice)})" if partial.choice else ""
            self._say(f"{head} found{choice}: ", partial.text)

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

    def answer(self, answer: Answer) -> None:
        """Show the answer with its citations and its cost."""
        self._console.print()
        choice = f"{answer.choice}. {answer.question.options[answer.choice]} — " if answer.choice else ""
        if answer.state == "answered":
            self._say("[bold]Answer[/bold]: ", printable(choice) + answer.text)
        elif answer.withheld:
            withheld = answer.withheld
            reason = f"The model's answer is not trusted: {withheld.reason}."
            self._say("[bold]No answer[/bold] (abstained): ", reason)
            choice = f"{withheld.choice}. {answer.question.options[withheld.choice]} — " if withheld.choice else ""
            self._say("  [dim]The model answered[/dim]: ", printable(choice) + withheld.text)
            for citation in withheld.citations:
                self._citation(citation)
        elif answer.state == "abstained":
            reason = answer.failure.message if answer.failure else answer.text or "the evidence does not answer it"
            self._say(f"[bold]No answer[/bold] ({answer.state}): ", reason)
        else:
            # The command ends with the reason on standard error.
            self._say(f"[bold]No answer[/bold] ({answer.state})")
        if answer.state == "answered" and not answer.citations and answer.strategy in ("rag", "brief-context"):
            self._say("  It cites nothing: do not rely on it.", style="yellow")
        if answer.narrowing != "none":
            self._line(f"  {_NARROWING[answer.narrowing]}")
        if answer.distribution:
            self._distribution(answer)
        for citation in answer.citations:
            self._citation(citation)
        if answer.patient is not None:
            name = f" ({answer.patient_name})" if answer.patient_name else ""
            self._say("[dim]Record read[/dim]: patient ", printable(answer.patient + name))
        self._say(f"[dim]{usage_line(answer.usage)}[/dim]")

    def _distribution(self, answer: Answer) -> None:
        shares = sorted(answer.distribution.items(), key=lambda pair: -pair[1])
        percentages = ", ".join(f"{letter} {share:.0%}" for letter, share in shares)
        basis = "probability of the next token"
        if answer.votes:
            choices = sum(vote.choice is not None for vote in answer.votes)
            basis = f"{choices} of {len(answer.votes)} votes"
        self._line(f"  {basis}: {percentages}; by {answer.decided_by}")

    def _citation(self, citation: Citation) -> None:
        origin = ", ".join(filter(None, (citation.title, citation.source, citation.date)))
        place = f"{citation.document_id}, characters {citation.start} to {citation.end}"
        marks = f" {_marks(citation.marks)}" if citation.marks else ""
        verdict = "found verbatim there" if citation.verified else "NOT found there: unverified"
        if citation.in_title:
            verdict = "found verbatim in its title"
        self._line(f"  [{citation.number}]{marks} {origin + '; ' if origin else ''}{place}")
        self._line(f"      “{citation.quotation}” ({verdict})")


def _first_ids(ids: Sequence[str]) -> str:
    """Return the first ids and the number of the others, or `(nothing)`."""
    others = f" and {len(ids) - MAX_IDS} more" if len(ids) > MAX_IDS else ""
    return f"{', '.join(ids[:MAX_IDS])}{others}" if ids else "(nothing)"


def _marks(marks: Sequence[ArticleMark]) -> str:
    """Return the marks of an article in capitals, so that they do not depend on colour."""
    return f"[{', '.join(MARK_LABELS[mark] for mark in marks)}]" if marks else ""


def _snippet(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= SNIPPET else line[: SNIPPET - 1] + "…"
