"""What a person sees: events and values as text on a terminal. Knows no computation.

Plain lines when standard output is not a terminal; colour is never the only carrier of meaning. Text of documents and
models is printable, and what does not stand on its line goes on behind `GUTTER`: it cannot pass for a citation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from epicrisis.answers import (
    Answer,
    Answered,
    AnswerStarted,
    Citation,
    Draft,
    Drafted,
    Event,
    ExamplesFound,
    MapFinished,
    MapStarted,
    ModelCalled,
    Notice,
    PartialAnswer,
    PreflightChecked,
    Retrieved,
    TextDelta,
    Usage,
    Vote,
    Voted,
    WithheldAnswer,
)
from epicrisis.cli.terminal import open_console
from epicrisis.printable import GUTTER, printable, split_printable_lines
from epicrisis.prompts import MARK_LABELS
from epicrisis.types import ArticleMark, Preflight, Question, Ranking

SNIPPET = 90
LISTED = 5
"""Ids of a ranking that preflight shows."""
_READ = {
    "kept": "From the notes that were left in by time; --setting timeline=false reads the whole record.",
    "lifted": "From the whole record: the notes that were left in by time did not answer it.",
}


class Screen:
    """Prints events as they come; standard output for answers, standard error for nothing but errors."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or open_console()
        self._streaming = False
        self._column = 0
        """Where the streamed line ends."""
        self._noted: set[str] = set()
        """What was said of a search before its ranking is shown."""
        self._shows: Mapping[type, Callable[[Any], None]] = {
            Retrieved: lambda event: self.ranking(event.ranking),
            PreflightChecked: lambda event: self._preflight(event.verdict),
            ExamplesFound: self._examples,
            Voted: lambda event: self._vote(event.vote),
            Drafted: lambda event: self._draft(event.draft),
            MapStarted: self._map_started,
            MapFinished: lambda event: self._map_finished(event.partial),
            AnswerStarted: self._answer_started,
            TextDelta: self._delta,
            Notice: self._notice,
            Answered: lambda event: self.answer(event.answer),
            ModelCalled: lambda event: None,
        }

    def show(self, event: Event) -> None:
        """One event, as soon as it happens."""
        if self._streaming and not isinstance(event, TextDelta):
            self._console.print()
            self._streaming = False
        self._shows[type(event)](event)

    def ranking(self, ranking: Ranking) -> None:
        """The hits with rank, score and the beginning of their text."""
        found = f"{len(ranking.hits)} passages"
        if "documents" in ranking.parameters:
            found += f" of {ranking.parameters['documents']} documents"
        self._told(f"[bold]Found by {escape(ranking.retriever)}[/bold]: {found}")
        for note in ranking.notes:
            if note not in self._noted:
                self._line(f"  note: {note}")
        self._noted.clear()
        for hit in ranking.hits:
            passage = hit.passage
            marks = _marks(passage.marks)
            self._line(f"{hit.rank + 1:>4}  {hit.score:.4f}  {passage.id}{f'  {marks}' if marks else ''}")
            date = f" ({passage.date})" if passage.date else ""
            source = f", {passage.source}" if passage.source and "beside" in ranking.parameters else ""
            self._line(f"              {_snippet(passage.title or passage.text)}{date}{source}")

    def _line(self, text: str) -> None:
        """Print a line of ids, titles and the like: no markup, and line breaks in it are spaces."""
        self._print(Text(printable(text)))

    def _told(self, head: str, text: str = "", style: str = "") -> None:
        """Print the program's own words (markup), and after them a text from outside with its further lines below."""
        first, *rest = split_printable_lines(text)
        self._print(Text.from_markup(f"{head}{escape(first)}", style=style, emoji=False))
        for line in rest:
            self._print(Text(f"{GUTTER}{line}", style=style))

    def _print(self, line: Text) -> None:
        """Print one line: whole in a pipe; on a terminal what does not fit goes on behind the gutter."""
        if not self._console.is_terminal:
            self._console.print(line, soft_wrap=True)
            return
        room = max(self._console.width - len(GUTTER), 20)
        for place, part in enumerate(line.wrap(self._console, room)):
            self._console.print(Text(GUTTER if place else "") + part, soft_wrap=True)

    def _preflight(self, verdict: Preflight) -> None:
        self._told("[bold]Preflight[/bold]: ", verdict.reason)
        self._line(f"  dense: {_listed(verdict.dense_top)}")
        if verdict.signal in ("overlap", "rank-biased-overlap", "bm25-gap"):
            self._line(f"  BM25:  {_listed(verdict.bm25_top)}")
        elif verdict.signal == "reranker-overlap":
            self._line(f"  reranker: {_listed(verdict.reranked_top)}")

    def _map_started(self, event: MapStarted) -> None:
        self._told(f"[bold]Map {event.partition + 1}[/bold] reads {len(event.passages)} passages")

    def _map_finished(self, partial: PartialAnswer) -> None:
        head = f"[bold]Map {partial.partition + 1}[/bold]"
        if partial.state == "failed":
            self._told(f"{head} failed: ", partial.failure.message if partial.failure else "no reason given")
        elif partial.state == "nothing":
            self._told(f"{head} found nothing relevant")
        else:
            choice = f" ({escape(partial.choice)})" if partial.choice else ""
            self._told(f"{head} found{choice}: ", partial.text)

    def _examples(self, event: ExamplesFound) -> None:
        self._told(f"[bold]Shows[/bold] {len(event.ids)} solved questions: ", ", ".join(map(printable, event.ids)))
        if event.left_out:
            self._line(f"  left out, for they are this question: {', '.join(event.left_out)}")

    def _vote(self, vote: Vote) -> None:
        head = f"[bold]Vote {vote.number + 1}[/bold]"
        letters = "".join(vote.letter_order)
        order = "" if letters == "".join(sorted(letters)) else f" (shown as {letters})"
        if vote.state == "answered":
            self._told(f"{head}{order}: {vote.choice}. ", _snippet(vote.text))
        else:
            self._told(f"{head}{order} {vote.state}", f": {vote.failure.message}" if vote.failure else "")

    def _draft(self, draft: Draft) -> None:
        head = f"[bold]Draft {draft.number + 1}[/bold]"
        if draft.text:
            self._told(f"{head}: ", draft.text)
        else:
            self._told(f"{head} {draft.state}", f": {draft.failure.message}" if draft.failure else "")

    def _answer_started(self, event: AnswerStarted) -> None:
        name = {"reduce": "Reduce", "rag": "RAG"}.get(event.stage, event.stage)
        kind = {"reduce": "findings", "rag": "passages"}.get(event.stage, "solved questions")
        what = f" over {event.documents} {kind}" if event.documents else ""
        self._console.print(f"[bold]{name}[/bold]{what}: ", end="")
        self._column = cell_len(f"{name}{what}: ")
        self._streaming = True

    def _delta(self, event: TextDelta) -> None:
        """Print a piece of the reply; on a terminal a line ends where the terminal would break it."""
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

    def _notice(self, event: Notice) -> None:
        self._told("note: ", event.message, "yellow")
        if event.kind == "search":
            self._noted.add(event.message)

    def answer(self, answer: Answer) -> None:
        """The answer with its citations and what it cost."""
        self._console.print()
        choice = f"{answer.choice}. {answer.question.options[answer.choice]} — " if answer.choice else ""
        if answer.state == "answered":
            self._told("[bold]Answer[/bold]: ", printable(choice) + answer.text)
        elif answer.withheld:
            self._withheld(answer.question, answer.withheld)
        elif answer.state == "abstained":
            reason = answer.failure.message if answer.failure else answer.text or "the evidence does not answer it"
            self._told(f"[bold]No answer[/bold] ({answer.state}): ", reason)
        else:
            # Why is said once, on standard error, when the command ends.
            self._told(f"[bold]No answer[/bold] ({answer.state})")
        if answer.state == "answered" and not answer.citations and answer.strategy in ("rag", "brief-context"):
            self._told("  It cites nothing: do not rely on it.", style="yellow")
        if answer.narrowing != "none":
            self._line(f"  {_READ[answer.narrowing]}")
        if answer.distribution:
            self._spread(answer)
        for citation in answer.citations:
            self._citation(citation)
        if answer.patient is not None:
            name = f" ({answer.patient_name})" if answer.patient_name else ""
            self._told("[dim]Record read[/dim]: patient ", printable(answer.patient + name))
        self._told(f"[dim]{usage_line(answer.usage)}[/dim]")

    def _withheld(self, question: Question, withheld: WithheldAnswer) -> None:
        choice = f"{withheld.choice}. {question.options[withheld.choice]} — " if withheld.choice else ""
        reason = f"The model's answer is not trusted: {withheld.reason}."
        self._told("[bold]No answer[/bold] (abstained): ", reason)
        self._told("  [dim]The model answered[/dim]: ", printable(choice) + withheld.text)
        for citation in withheld.citations:
            self._citation(citation)

    def _spread(self, answer: Answer) -> None:
        shares = sorted(answer.distribution.items(), key=lambda pair: -pair[1])
        told = ", ".join(f"{letter} {share:.0%}" for letter, share in shares)
        stated = sum(vote.choice is not None for vote in answer.votes)
        of = f"{stated} of {len(answer.votes)} votes" if answer.votes else "the next token's probability"
        self._line(f"  {of}: {told}; by {answer.decided_by}")

    def _citation(self, citation: Citation) -> None:
        origin = ", ".join(filter(None, (citation.title, citation.source, citation.date)))
        place = f"{citation.document_id}, characters {citation.start} to {citation.end}"
        marks = f" {_marks(citation.marks)}" if citation.marks else ""
        verdict = "found verbatim there" if citation.verified else "NOT found there: unverified"
        if citation.in_title:
            verdict = "found verbatim in its title"
        self._line(f"  [{citation.number}]{marks} {origin + '; ' if origin else ''}{place}")
        self._line(f"      “{citation.quotation}” ({verdict})")


def _listed(ids: Sequence[str]) -> str:
    """Return the first ids with the number of the others, or `(nothing)`."""
    more = f" and {len(ids) - LISTED} more" if len(ids) > LISTED else ""
    return f"{', '.join(ids[:LISTED])}{more}" if ids else "(nothing)"


def _marks(marks: Sequence[ArticleMark]) -> str:
    """What a reader must know of an article, in capitals: colour alone would say it to few."""
    return f"[{', '.join(MARK_LABELS[mark] for mark in marks)}]" if marks else ""


def usage_line(usage: Usage) -> str:
    """Calls, tokens, seconds and cost, in one line."""
    cost = "cost unknown" if usage.cost is None else "no charge" if usage.cost == 0 else f"${usage.cost:.4f}"
    failed = f" ({usage.failed_calls} failed)" if usage.failed_calls else ""
    calls = f"{usage.calls:,} call{'' if usage.calls == 1 else 's'}"
    kept = f"{usage.replayed_calls:,} kept repl{'y' if usage.replayed_calls == 1 else 'ies'}"
    replayed = f" and {kept}" if usage.replayed_calls else ""
    thought = f" ({usage.reasoning_tokens:,} of them thinking)" if usage.reasoning_tokens else ""
    uncounted = f", the tokens of {usage.uncounted_calls:,} calls unknown" if usage.uncounted_calls else ""
    return (
        f"{calls}{failed}{replayed}, {usage.prompt_tokens:,} prompt tokens "
        f"({usage.cached_tokens:,} cached), {usage.completion_tokens:,} completion tokens{thought}{uncounted}, "
        f"{usage.seconds:.1f} s of model time, {cost}"
    )


def _snippet(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= SNIPPET else line[: SNIPPET - 1] + "…"
