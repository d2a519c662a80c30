"""What a person sees: events and values as text on a terminal. Knows no computation.

Plain lines when standard output is not a terminal; colour is never the only carrier of meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from epicrisis.answers import (
    Answer,
    Answered,
    AnswerStarted,
    Called,
    Citation,
    Delta,
    Draft,
    Drafted,
    Event,
    ExamplesFound,
    MapFinished,
    MapStarted,
    Notice,
    Partial,
    PreflightChecked,
    Retrieved,
    Usage,
    Vote,
    Voted,
)
from epicrisis.types import Preflight, Ranking

SNIPPET = 90


class Screen:
    """Prints events as they come; standard output for answers, standard error for nothing but errors."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._streaming = False
        self._shows: Mapping[type, Callable[[Any], None]] = {
            Retrieved: lambda event: self.ranking(event.ranking),
            PreflightChecked: lambda event: self._preflight(event.verdict),
            ExamplesFound: self._examples,
            Voted: lambda event: self._vote(event.vote),
            Drafted: lambda event: self._draft(event.draft),
            MapStarted: self._map_started,
            MapFinished: lambda event: self._map_finished(event.partial),
            AnswerStarted: self._answer_started,
            Delta: self._delta,
            Notice: self._notice,
            Answered: lambda event: self.answer(event.answer),
            Called: lambda event: None,
        }

    def show(self, event: Event) -> None:
        """One event, as soon as it happens."""
        if self._streaming and not isinstance(event, Delta):
            self._console.print()
            self._streaming = False
        self._shows[type(event)](event)

    def ranking(self, ranking: Ranking) -> None:
        """The hits with rank, score and the beginning of their text."""
        found = f"{len(ranking.hits)} passages"
        if "documents" in ranking.parameters:
            found += f" of {ranking.parameters['documents']} documents"
        self._console.print(f"[bold]Found by {ranking.retriever}[/bold]: {found}")
        for note in ranking.notes:
            self._line(f"  note: {note}")
        for hit in ranking.hits:
            passage = hit.passage
            self._line(f"{hit.rank + 1:>4}  {hit.score:.4f}  {passage.id}")
            date = f" ({passage.date})" if passage.date else ""
            source = f", {passage.source}" if passage.source and "beside" in ranking.parameters else ""
            self._line(f"              {_snippet(passage.title or passage.text)}{date}{source}")

    def _line(self, text: str) -> None:
        """Text of documents and models: no markup, and no line broken where a program may read it."""
        self._console.print(text, markup=False, soft_wrap=True)

    def _preflight(self, verdict: Preflight) -> None:
        self._console.print(f"[bold]Preflight[/bold]: {verdict.reason}")
        self._line(f"  dense: {', '.join(verdict.dense_top) or '(nothing)'}")
        if verdict.signal in ("overlap", "rank-biased-overlap", "bm25-gap"):
            self._line(f"  BM25:  {', '.join(verdict.bm25_top) or '(nothing)'}")
        elif verdict.signal == "reranker-overlap":
            self._line(f"  reranker: {', '.join(verdict.reranked_top) or '(nothing)'}")

    def _map_started(self, event: MapStarted) -> None:
        self._console.print(f"[bold]Map {event.partition + 1}[/bold] reads {len(event.passages)} passages")

    def _map_finished(self, partial: Partial) -> None:
        head = f"[bold]Map {partial.partition + 1}[/bold]"
        if partial.state == "failed":
            reason = partial.failure.message if partial.failure else "no reason given"
            self._console.print(f"{head} failed: {escape(reason)}")
        elif partial.state == "nothing":
            self._console.print(f"{head} found nothing relevant")
        else:
            choice = f" ({partial.choice})" if partial.choice else ""
            self._console.print(f"{head} found{choice}: {escape(partial.text)}")

    def _examples(self, event: ExamplesFound) -> None:
        self._console.print(f"[bold]Shows[/bold] {len(event.ids)} solved questions: {escape(', '.join(event.ids))}")
        if event.left_out:
            self._line(f"  left out, for they are this question: {', '.join(event.left_out)}")

    def _vote(self, vote: Vote) -> None:
        head = f"[bold]Vote {vote.number + 1}[/bold]"
        shown = "" if list(vote.shown) == sorted(vote.shown) else f" (shown as {''.join(vote.shown)})"
        if vote.state == "answered":
            self._console.print(f"{head}{shown}: {vote.choice}. {escape(_snippet(vote.text))}")
        else:
            reason = f": {escape(vote.failure.message)}" if vote.failure else ""
            self._console.print(f"{head}{shown} {vote.state}{reason}")

    def _draft(self, draft: Draft) -> None:
        head = f"[bold]Draft {draft.number + 1}[/bold]"
        reason = f": {draft.failure.message}" if draft.failure else ""
        self._console.print(f"{head}: {escape(draft.text)}" if draft.text else f"{head} {draft.state}{escape(reason)}")

    def _answer_started(self, event: AnswerStarted) -> None:
        name = {"reduce": "Reduce", "rag": "RAG"}.get(event.stage, event.stage)
        kind = {"reduce": "findings", "rag": "passages"}.get(event.stage, "solved questions")
        what = f" over {event.documents} {kind}" if event.documents else ""
        self._console.print(f"[bold]{name}[/bold]{what}: ", end="")
        self._streaming = True

    def _delta(self, event: Delta) -> None:
        self._console.print(escape(event.text), end="", soft_wrap=True)
        self._streaming = True

    def _notice(self, event: Notice) -> None:
        self._console.print(f"note: {escape(event.message)}", style="yellow")

    def answer(self, answer: Answer) -> None:
        """The answer with its citations and what it cost."""
        self._console.print()
        choice = f"{answer.choice}. {answer.question.options[answer.choice]} — " if answer.choice else ""
        if answer.state == "answered":
            self._console.print(f"[bold]Answer[/bold]: {escape(choice + answer.text)}")
        else:
            reason = answer.failure.message if answer.failure else answer.text or "the evidence does not answer it"
            self._console.print(f"[bold]No answer[/bold] ({answer.state}): {escape(reason)}")
        if answer.state == "answered" and not answer.citations and answer.strategy in ("rag", "brief-context"):
            self._console.print("  It cites nothing: do not rely on it.", style="yellow")
        if answer.distribution:
            self._spread(answer)
        for citation in answer.citations:
            self._citation(citation)
        self._console.print(f"[dim]{usage_line(answer.usage)}[/dim]")

    def _spread(self, answer: Answer) -> None:
        shares = sorted(answer.distribution.items(), key=lambda pair: -pair[1])
        told = ", ".join(f"{letter} {share:.0%}" for letter, share in shares)
        stated = sum(vote.choice is not None for vote in answer.votes)
        of = f"{stated} of {len(answer.votes)} votes" if answer.votes else "the next token's probability"
        self._console.print(f"  {of}: {told}; by {answer.decided_by}")

    def _citation(self, citation: Citation) -> None:
        origin = ", ".join(filter(None, (citation.title, citation.source, citation.date)))
        place = f"{citation.document_id}, characters {citation.start} to {citation.end}"
        verdict = "found verbatim there" if citation.verified else "NOT found there: unverified"
        self._console.print(
            f"  {escape(f'[{citation.number}]')} {escape(origin + '; ' if origin else '')}{escape(place)}"
        )
        self._console.print(f"      “{escape(citation.quotation)}” ({verdict})")


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
    line = " ".join(text.split())
    return line if len(line) <= SNIPPET else line[: SNIPPET - 1] + "…"
