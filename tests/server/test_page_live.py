"""What the page shows while an answer is written: the verdict and the claims as they arrive, not checked yet."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.reply_stream import ReplyStream
from epicrisis.core.answers import Notice, Quotation, TextDelta
from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.server.app import create_app
from epicrisis.server.page.live import LiveAnswer
from epicrisis.testing.chat import ScriptedModel
from tests.support.pages import Page, ask, demo_documents, quoting_model
from tests.support.replies import fill
from tests.support.servers import QUESTION, connect, open_library, open_resources

CLAIMS = ("Colchicine was given.", "It was given daily.", "Nobody bled.")
PARTIAL = re.compile(r'<hx-partial hx-target="#([^"]+)" hx-swap="([^"]+)">(.*?)</hx-partial>', re.DOTALL)

CREATED = re.compile(r'<span id="(live-claim-\d)">(.*?)</span>')


def claim(request: ChatRequest) -> str:
    claims = [{"text": text, "sentences": [number]} for number, text in enumerate(CLAIMS, 1)]
    values = {"found": True, "claims": claims, "choice": "yes"}
    return json.dumps(fill(request.schema or {}, values, CLAIMS[0]))


class RestartingModel(ScriptedModel):
    """Streams half of a reply, breaks off, and streams another one."""

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        if on_delta is not None:
            on_delta('{"result": {"found": true, "claims": [{"text": "Words that are discarded.", "sent')
            on_delta(None)
        return await super().complete(request, on_delta)


def stream(folder: Path, model: ScriptedModel, **fields: str) -> str:
    app = create_app(open_resources(open_library(folder / "lib", model, citing="numbers")))

    async def run() -> str:
        async with connect(app) as client:
            headers = {"Accept": "text/html, text/event-stream", "HX-Request": "true"}
            return (await client.post("/ask", data={"question": QUESTION, **fields}, headers=headers)).text

    return asyncio.run(run())


def shown(text: str) -> dict[str, str]:
    """Return what each element of the page holds before the answer replaces it."""
    held: dict[str, str] = {}
    for target, swap, content in PARTIAL.findall(text.partition('class="answer"')[0]):
        held[target] = content if swap == "innerHTML" else held.get(target, "") + content
        if created := CREATED.search(content):
            held[created[1]] = created[2]
    return held


@pytest.mark.slow
def test_open_answer_streams_first_claim_as_verdict_and_others_below_it(tmp_path: Path) -> None:
    text = stream(tmp_path, ScriptedModel(claim))
    held = shown(text)
    assert held["live-verdict"] == CLAIMS[0]
    assert [held["live-claim-1"].strip(), held["live-claim-2"].strip()] == list(CLAIMS[1:])
    assert held["live-claims"].count("not checked yet") == 2
    # One claim is complete before the next one begins, and each piece is a few words of it.
    assert text.index('id="live-claim-1"') < text.index('hx-target="#live-claim-1"') < text.index('id="live-claim-2"')
    assert len([piece for piece in PARTIAL.findall(text) if piece[0] == "live-verdict"]) >= 3


@pytest.mark.slow
def test_each_claim_comes_with_the_sentences_it_names_before_the_next_begins(tmp_path: Path) -> None:
    text = stream(tmp_path, ScriptedModel(claim))
    live = text.partition('class="answer"')[0]
    held = shown(text)
    named = re.findall(r'<span class="cite">(\d)</span> <q>(.*?)</q> <cite>(.*?)</cite>', held["live-sources"])
    assert [number for number, _, _ in named] == ["1", "2", "3"]
    assert all(sentence and title for _, sentence, title in named)
    assert ">1<" in held["live-named"]
    assert ">2<" in held["live-named-1"]
    assert live.index('hx-target="#live-named"') < live.index('id="live-claim-1"')
    assert live.index('hx-target="#live-named-1"') < live.index('id="live-claim-2"')


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_sentences_of_a_claim_are_those_that_its_numbers_name(size: int) -> None:
    offered = [Quotation(f"d{n}#0", f"Sentence {n}.", 0, 11) for n in range(1, 12)]
    claims = [
        {"text": 'It says "sentences": [3].', "sentences": [11, 1, 11]},
        {"text": "None.", "sentences": []},
        {"text": "Another.", "sentences": ["s2", 12]},
    ]
    reply = json.dumps({"result": {"found": True, "claims": claims}})
    reader = ReplyStream("rag", AnswerFormat({}, sentences=11), str, offered)
    deltas = [delta for at in range(0, len(reply), size) for delta in reader.feed(reply[at : at + size])]
    named = {
        delta.claim: [offered.index(quotation) + 1 for quotation in delta.quotations]
        for delta in deltas
        if delta.quotations
    }
    assert named == {0: [11, 1], 2: [2]}


@pytest.mark.slow
def test_sentences_found_come_before_the_answer_and_are_called_none(tmp_path: Path) -> None:
    text = stream(tmp_path, ScriptedModel(claim))
    (found,) = [html for target, _, html in PARTIAL.findall(text) if target == "live-proof"]
    assert "Sentences found" in found
    assert "<q>" in found
    assert text.index('hx-target="#live-proof"') < text.index('class="answer"')
    # Sentences alone are the answer: they are found once.
    alone = stream(tmp_path / "alone", ScriptedModel(claim), strategy="evidence")
    assert "live-proof" not in {target for target, _, _ in PARTIAL.findall(alone)}


@pytest.mark.slow
def test_question_with_options_streams_claims_and_puts_choice_first(tmp_path: Path) -> None:
    held = shown(stream(tmp_path, ScriptedModel(claim), options="yes, no"))
    assert held["live-verdict"] == "A. yes"
    assert [held[f"live-claim-{number}"].strip() for number in (1, 2, 3)] == list(CLAIMS)


@pytest.mark.slow
def test_broken_off_reply_removes_its_words_from_the_page(tmp_path: Path) -> None:
    text = stream(tmp_path, RestartingModel(claim))
    assert "Words that are discarded." in text
    assert shown(text)["live-verdict"] == CLAIMS[0]


@pytest.mark.slow
def test_screen_reader_hears_phases_and_no_word_of_the_reply(tmp_path: Path) -> None:
    text = stream(tmp_path, ScriptedModel(claim), strategy="brief-context")
    live = text.partition("<hx-partial")[0]
    assert live.count('role="status"') == 1
    assert "aria-live" not in text
    phases = [content for target, _, content in PARTIAL.findall(text) if target == "live-phase"]
    assert 1 <= len(phases) == len(set(phases)) <= 3


@pytest.mark.parametrize(
    ("claims", "targets"), [((0, 0), ["live-verdict"]), ((0, 2), ["live-verdict", "live-claim-2"])]
)
def test_claim_without_text_before_it_still_has_its_place(claims: tuple[int, ...], targets: list[str]) -> None:
    live = LiveAnswer("Why?", {})
    html = "".join(live.render_event(TextDelta("rag", "x", number)) for number in claims)
    assert [name for name, text in shown(html).items() if text.startswith("x")] == targets
    assert shown(html).get("live-claim-1", "") == ""


def test_reply_asked_again_clears_claims() -> None:
    live = LiveAnswer("Why?", {"A": "yes"})
    live.render_event(TextDelta("rag", "first"))
    cleared = live.render_event(Notice("asked-again", "rag: unreadable; asked once more"))
    assert ("live-claims", "innerHTML", "") in PARTIAL.findall(cleared)
    assert 'id="live-claim-1"' in live.render_event(TextDelta("rag", "second"))


@pytest.mark.parametrize("size", [1, 2, 5, 13, 1000])
@pytest.mark.parametrize("by_words", [True, False])
def test_choice_is_read_once_when_it_is_complete(size: int, by_words: bool) -> None:
    form = AnswerFormat({"A": "no", "B": "no, never", "C": "no, never"}, sentences=3 if by_words else 0)
    claims = [{"text": 'he said "choice": "no"', "sentences": [1]}]
    fields = {"found": True, "claims": claims} if by_words else {"found": True, "answer": "It was."}
    reply = json.dumps({"result": {**fields, "choice": "no, never" if by_words else "B"}})
    reader = ReplyStream("rag", form, str)
    deltas = [delta for at in range(0, len(reply), size) for delta in reader.feed(reply[at : at + size])]
    assert [delta.choice for delta in deltas if delta.choice] == ["B"]


@pytest.mark.parametrize(
    "reply", ['{"result": {"choice": 3}}', '{"choice": "maybe"}', "[1] choice", '{"choice": "\ud800"}']
)
def test_choice_that_is_no_option_is_not_shown(reply: str) -> None:
    reader = ReplyStream("rag", AnswerFormat({"A": "yes"}), str)
    assert [delta for delta in reader.feed(reply) if delta.choice] == []


@pytest.mark.slow
def test_whole_page_of_answer_is_smaller_than_150_kb(tmp_path: Path) -> None:
    library = open_library(tmp_path / "lib", quoting_model(), demo_documents(), k=16, partition=4)

    async def run() -> int:
        async with connect(create_app(open_resources(library))) as client:
            html = (await client.get(await ask(client, "Does aspirin prevent it?", strategy="evidence"))).text
            page = Page(html)
            files = [element.attributes["src"] for element in page.all("script")]
            files += [element.attributes["href"] for element in page.all("link")]
            sizes = [len((await client.get(file)).content) for file in files]
            assert len(page.all("div", "card")) >= 3
            assert min(sizes) > 0
            return len(html.encode()) + sum(sizes)

    assert 50_000 < asyncio.run(run()) < 150_000
