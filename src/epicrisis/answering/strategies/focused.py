"""Focused context: one prompt with the selected sentences, their neighbours, and nothing else.

The sentences come from the documents of plain RAG, whole, so a difference to RAG is due to the selection alone. A
neighbour in a passage that was not read is not read either: a given ranking and a patient's notes are not completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from epicrisis.answering.document_answers import NOTHING_RETRIEVED
from epicrisis.answering.one_prompt import answer_in_one_prompt, check_route
from epicrisis.answering.prompt_budget import count_map_reduce, cut_to_limit, fit_sentences
from epicrisis.answering.strategies.evidence import list_spans
from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context, SentenceSplitting, make_unanswered
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import Answer, Notice, Retrieved, SentencesSelected
from epicrisis.core.errors import ChatError
from epicrisis.core.partitioning import take_before_gap
from epicrisis.core.prompts import check_scope
from epicrisis.core.protocols import Message
from epicrisis.core.references import join_places
from epicrisis.core.types import Passage, Question, Ranking, Sentence

NAME = "focused"
MAX_SENTENCES = 100
"""Sentences to select where a number of tokens limits them."""


async def focused(question: Question, context: Context) -> Answer:
    """Answer from one prompt with the best sentences of the passages and their neighbours.

    Documents are in the order of their best sentences, or in the order of time; sentences in that of the document.
    """
    check_route(context)
    everything = await context.retrieve(question)
    ranking = take_before_gap(everything)
    context.emit(Retrieved(ranking))
    context = replace(context, ranks=everything.ranks)
    if not ranking.hits:
        return Answer(question=question, strategy=NAME, state="abstained", failure=NOTHING_RETRIEVED)
    if context.read_whole is not None:
        ranking = await context.read_whole(ranking)
    # Before the selection, because a reranker may be another machine.
    check_scope(ranking.passages, context.scope)
    is_limited = context.options.focus_tokens is not None or context.prompt_tokens is not None
    n = MAX_SENTENCES if is_limited else context.options.sentences
    selection = await context.select_sentences(question, n, _order_by_rank(ranking))
    for note in selection.notes:
        context.emit(Notice("search", note))
    try:
        document_texts = DocumentTexts.join(ranking.passages, context.split_sentences)
        sentences = await _fit_budget(context, document_texts, selection.sentences)
        by_time = ranking.parameters.get("order") == "time"
        order = ranking.document_ids if by_time else [sentence.passage.document_id for sentence in sentences]

        def cut(n: int) -> tuple[Passage, ...]:
            return document_texts.cut(sentences[:n], context.options.neighbours, order)

        n = len(sentences)
        if context.prompt_tokens is not None:
            n = await fit_sentences(question, context, cut, n, context.prompt_tokens)
        context.emit(SentencesSelected(list_spans(replace(selection, hits=selection.hits[:n]))))
        passages = cut(n)
        return await answer_in_one_prompt(question, context, passages, NAME, everything.passages)
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, NAME, error)


def _order_by_rank(ranking: Ranking) -> Ranking:
    """Return the hits of a ranking in order of time as they were ranked, since the rank counts in the selection."""
    places = {id_: place for place, id_ in enumerate(ranking.parameters.get("ranked", ()))}
    hits = sorted(ranking.hits, key=lambda hit: places.get(hit.passage.id, hit.rank))
    return replace(ranking, hits=tuple(hits))


async def _fit_budget(
    context: Context, document_texts: DocumentTexts, sentences: tuple[Sentence, ...]
) -> tuple[Sentence, ...]:
    """Return the best sentences that fit, with their neighbours, into `context.options.focus_tokens`.

    Nothing is cut within a sentence. The best sentence is read however long it is. Raises ChatError.
    """
    if context.options.focus_tokens is None:
        return sentences
    model = context.models["writer"]
    template = await model.count_tokens((Message("user", ""),))
    counts: dict[str, int] = {}
    for n in range(1, len(sentences) + 1):
        total = 0
        for passage in document_texts.cut(sentences[:n], context.options.neighbours, ()):
            if passage.text not in counts:
                counts[passage.text] = await model.count_tokens((Message("user", passage.text),)) - template
            total += counts[passage.text]
        if total <= context.options.focus_tokens:
            continue
        if n == 1:
            wanted = context.options.focus_tokens
            message = f"the best sentence and its neighbours have {total:,} tokens, of {wanted:,} wanted"
            context.emit(Notice("sentences", message))
        return sentences[: max(1, n - 1)]
    return sentences


@dataclass(frozen=True, slots=True)
class DocumentTexts:
    """The retrieved parts of documents, with their sentences."""

    runs: tuple[Passage, ...]
    """Passages of one document that touch or overlap, joined; by document and place."""
    last_ordinals: tuple[int, ...]
    """The ordinal of the last passage in each run. That of a run is its first passage's."""
    sentences: tuple[tuple[int, int, int], ...]
    """The run (by its number), start and end of each sentence, with offsets in the document."""

    @classmethod
    def join(cls, passages: Sequence[Passage], split: SentenceSplitting) -> DocumentTexts:
        """Return the texts of these passages. `split` returns the sentences of a text."""
        runs: list[Passage] = []
        last_ordinals: list[int] = []
        for passage in sorted(passages, key=lambda passage: (passage.document_id, passage.start, passage.end)):
            last = runs[-1] if runs else None
            if last is None or last.document_id != passage.document_id or passage.start > last.end:
                runs.append(passage)
                last_ordinals.append(passage.ordinal)
            elif passage.end > last.end:
                text = last.text + passage.text[last.end - passage.start :]
                metadata = join_places((last, passage))
                runs[-1] = replace(last, text=text, end=passage.end, metadata=metadata)
                last_ordinals[-1] = passage.ordinal
        sentences: list[tuple[int, int, int]] = []
        for number, run in enumerate(runs):
            sentences += [(number, run.start + start, run.start + end) for start, end in split(run.text)]
        return cls(tuple(runs), tuple(last_ordinals), tuple(sentences))

    def cut(self, selection: Sequence[Sentence], neighbours: int, order: Sequence[str]) -> tuple[Passage, ...]:
        """Return the spans of the selected sentences with their neighbours, in the order of these document ids.

        Adjacent and overlapping spans are one passage. Each is verbatim, at its true offsets in the document.
        """
        chosen: set[int] = set()
        for sentence in selection:
            for index, (number, start, end) in enumerate(self.sentences):
                same_document = self.runs[number].document_id == sentence.passage.document_id
                if same_document and start < sentence.end and sentence.start < end:
                    chosen |= self._with_neighbours(index, neighbours)
        spans: list[list[int]] = []
        for index in sorted(chosen):
            same_run = index > 0 and self.sentences[index][0] == self.sentences[index - 1][0]
            if same_run and index - 1 in chosen:
                spans[-1].append(index)
            else:
                spans.append([index])
        places: dict[str, int] = {}
        for place, document_id in enumerate(order):
            places.setdefault(document_id, place)
        passages = [self._build_passage(span[0], span[-1]) for span in spans]
        # The spans of a document are in order already, and the sort is stable.
        return tuple(sorted(passages, key=lambda passage: places.get(passage.document_id, len(places))))

    def _with_neighbours(self, index: int, neighbours: int) -> set[int]:
        """Return the sentence with those before and after it in the document, as far as they were retrieved."""
        indices = {index}
        for step in (-1, 1):
            at = index
            for _ in range(neighbours):
                if not self._are_adjacent(at, at + step):
                    break
                at += step
                indices.add(at)
        return indices

    def _are_adjacent(self, one: int, other: int) -> bool:
        """Return whether no text is between two sentences of a document. Consecutive passages have none between."""
        if not 0 <= other < len(self.sentences):
            return False
        first, second = sorted((self.sentences[one][0], self.sentences[other][0]))
        before, after = self.runs[first], self.runs[second]
        if before.document_id != after.document_id:
            return False
        return first == second or after.ordinal == self.last_ordinals[first] + 1

    def _build_passage(self, first: int, last: int) -> Passage:
        """Return the passage from one sentence to another of the same run.

        Its ordinal is its offset, so that spans with a gap between them never count as consecutive.
        """
        number, start, _ = self.sentences[first]
        end, run = self.sentences[last][2], self.runs[number]
        text = run.text[start - run.start : end - run.start]
        id_ = f"{run.document_id}#{start}-{end}"
        return replace(run, id=id_, ordinal=start, start=start, end=end, text=text)


async def cut(question: Question, context: Context, ranking: Ranking, limit: int) -> Ranking:
    """Return the ranking: `fit_sentences` fits the prompt. What BriefContext may read too has half of the limit."""
    if context.options.route == "off":
        return ranking

    async def count_prompts(passages: tuple[Passage, ...]) -> int:
        return await count_map_reduce(question, context, passages)

    return await cut_to_limit(ranking, count_prompts, limit - limit // 2)


STRATEGY = Strategy(
    name=NAME,
    run=focused,
    label="Read only the best sentences",
    help="One prompt with the best sentences of the documents found, and their neighbours.",
    needs_sentences=True,
    routes=True,
    cut=cut,
)
