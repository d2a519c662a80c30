"""Thinking apart from the answer: in one text, in fields of its own, and in its own room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.errors import ReplyInvalid, ReplyTruncated
from epicrisis.models.chat.endpoints.reply import ThinkingSplitter, split_thinking
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.protocols import ChatReply, ChatRequest, Message
from tests.support.loopback import Endpoint, Scripted

REQUEST = ChatRequest((Message("user", "Why?"),), max_tokens=50, max_reasoning_tokens=200)
USAGE = {"prompt_tokens": 9, "completion_tokens": 30}


@pytest.mark.parametrize(
    ("text", "answer", "thinking"),
    [
        ("hello", "hello", ""),
        ("", "", ""),
        ("  hello", "  hello", ""),
        ("<think>a b</think>\n\nhi", "hi", "a b"),
        ("\n<thinking>a</thinking>hi", "hi", "a"),
        ("<think></think>hi", "hi", ""),
        ("<reasoning>a</reasoning><reasoning> b</reasoning> hi", "hi", "a b"),
        ("<think>never ended", "", "never ended"),
        ("<thi", "<thi", ""),
        ("<b>bold</b>", "<b>bold</b>", ""),
        ("the mark <think>x</think> later", "the mark <think>x</think> later", ""),
        ("no beginning</think> hi", "no beginning</think> hi", ""),
    ],
)
def test_split_thinking_leading_tags_are_separated(text: str, answer: str, thinking: str) -> None:
    assert split_thinking(text) == (answer, thinking)


def test_split_thinking_expected_end_tag_without_start_ends_thinking() -> None:
    assert split_thinking("so it is</think>\n\nhi", expected=True) == ("hi", "so it is")
    assert split_thinking("<think>a</think>b</think>c", expected=True) == ("b</think>c", "a")
    assert split_thinking("hi", expected=True) == ("hi", "")


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<reasoning>", "</reasoning>", "<", "k>", " ", "word", "é"])),
    st.booleans(),
)
def test_thinking_splitter_any_chunks_match_whole_text(pieces: list[str], expected: bool) -> None:
    text = "".join(pieces)
    expected_parts = split_thinking(text, expected=expected)
    splitter, answer, thinking = ThinkingSplitter(expected=expected), "", ""
    for parts in [*(splitter.feed(character) for character in text), splitter.finish()]:
        answer = parts.answer if parts.void else answer + parts.answer
        thinking += parts.thinking
    assert (answer, thinking) == expected_parts


# -- on the wire ----------------------------------------------------------------------------------------------------


def ask(
    endpoint: Endpoint, script: Scripted, request: ChatRequest = REQUEST, deltas: list[str | None] | None = None
) -> ChatReply:
    endpoint.script["/v1/chat/completions"] = [script]

    async def run() -> ChatReply:
        model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=5)
        try:
            return await model.complete(request, None if deltas is None else deltas.append)
        finally:
            await model.aclose()

    return asyncio.run(run())


def make_reply(message: Mapping[str, object], finish: str = "stop", usage: object = USAGE) -> Scripted:
    return Scripted({"choices": [{"message": message, "finish_reason": finish}], "usage": usage})


def make_stream(*deltas: Mapping[str, object], finish: str | None = "stop", usage: object = USAGE) -> Scripted:
    events: list[dict[str, object]] = [{"choices": [{"delta": delta}]} for delta in deltas]
    events += [{"choices": [{"delta": {}, "finish_reason": finish}]}] if finish else []
    events += [{"choices": [], "usage": usage}]
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return Scripted(f"{text}data: [DONE]\n\n", kind="text/event-stream")


@pytest.mark.parametrize(
    "message",
    [
        {"content": "Yes.", "reasoning_content": "It may be."},
        {"content": "Yes.", "reasoning": "It may be."},
        {"content": "<think>It may be.</think>\nYes."},
        {"content": "It may be.</think>\nYes."},
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "It may be."}]},
                {"type": "text", "text": "Yes."},
            ]
        },
    ],
)
def test_complete_thinking_is_separated_from_text(endpoint: Endpoint, message: dict[str, object]) -> None:
    reply = ask(endpoint, make_reply(message))
    assert (reply.text, reply.reasoning) == ("Yes.", "It may be.")
    assert reply.usage.reasoning_tokens == 4
    assert endpoint.bodies("/v1/chat/completions")[0]["max_tokens"] == 250


def test_complete_reasoning_of_unknown_form_is_ignored(endpoint: Endpoint) -> None:
    assert ask(endpoint, make_reply({"content": "Yes.", "reasoning": {"effort": "low"}})).reasoning == ""


def test_complete_stream_does_not_deliver_thinking(endpoint: Endpoint) -> None:
    script = make_stream(
        {"role": "assistant", "content": ""},
        {"reasoning_content": "It "},
        {"reasoning": "may be."},
        {"content": "<thi"},
        {"content": "nk> So it is. </think"},
        {"content": "> Ye"},
        {"content": "s."},
    )
    deltas: list[str | None] = []
    reply = ask(endpoint, script, deltas=deltas)
    assert (deltas, reply.text, reply.reasoning) == (["Ye", "s."], "Yes.", "It may be. So it is. ")


def test_complete_stream_delivered_thinking_is_voided(endpoint: Endpoint) -> None:
    deltas: list[str | None] = []
    reply = ask(
        endpoint, make_stream({"content": "It may be."}, {"content": "</think>"}, {"content": "Yes."}), deltas=deltas
    )
    assert (deltas, reply.text, reply.reasoning) == (["It may be.", None, "Yes."], "Yes.", "It may be.")


def test_reasoning_tokens_reported_by_endpoint_are_used(endpoint: Endpoint) -> None:
    usage = USAGE | {"completion_tokens_details": {"reasoning_tokens": 21}}
    assert ask(endpoint, make_reply({"content": "Yes."}, usage=usage)).usage.reasoning_tokens == 21
    beside = USAGE | {"total_tokens": 139}
    spent = ask(endpoint, make_reply({"content": "Yes."}, usage=beside)).usage
    assert (spent.completion_tokens, spent.reasoning_tokens) == (130, 100)


def test_reasoning_tokens_are_counted_by_endpoint_tokenizer(endpoint: Endpoint) -> None:
    endpoint.script["/tokenize"] = [Scripted({"count": 7})]
    spent = ask(endpoint, make_reply({"content": "Yes.", "reasoning": "It may be."})).usage
    assert (spent.completion_tokens, spent.reasoning_tokens, spent.uncounted_calls) == (30, 7, 0)
    assert endpoint.bodies("/tokenize")[-1] == {"model": "m", "prompt": "It may be.", "add_special_tokens": False}


def test_complete_thinking_without_reasoning_limit_is_noted(endpoint: Endpoint) -> None:
    request = ChatRequest(REQUEST.messages, 50)
    reply = ask(endpoint, make_reply({"content": "Yes.", "reasoning": "It may be."}), request)
    assert reply.notes == ("the model thinks, in the room of its answer: set max_reasoning_tokens",)
    assert endpoint.bodies("/v1/chat/completions")[0]["max_tokens"] == 50


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("message", "usage", "tokens"),
    [
        ({"content": None, "reasoning": "It may be."}, USAGE, 4),
        ({"content": "<think>It may be."}, USAGE, 4),
        ({"content": ""}, USAGE | {"completion_tokens_details": {"reasoning_tokens": 21}}, 21),
    ],
)
def test_complete_thinking_without_answer_raises_reply_truncated(
    endpoint: Endpoint, message: dict[str, object], usage: object, tokens: int, streams: bool
) -> None:
    script = make_stream(message, finish="length", usage=usage) if streams else make_reply(message, "length", usage)
    with pytest.raises(ReplyTruncated, match=f"thought for {tokens} tokens .*raise max_reasoning_tokens") as caught:
        ask(endpoint, script, deltas=[] if streams else None)
    spent = caught.value.usage
    assert (spent.calls, spent.failed_calls, spent.uncounted_calls) == (1, 1, 0)
    assert (spent.prompt_tokens, spent.completion_tokens, spent.reasoning_tokens) == (9, 30, tokens)


def test_complete_only_thinking_raises_reply_invalid(endpoint: Endpoint) -> None:
    with pytest.raises(ReplyInvalid, match="only thinks"):
        ask(endpoint, make_reply({"content": "", "reasoning": "It may be."}))


def test_complete_stream_thinking_over_limit_is_stopped(endpoint: Endpoint) -> None:
    thoughts = [{"reasoning": f" thought{number}"} for number in range(260)]
    script = make_stream(*thoughts, {"content": "Yes."})
    with pytest.raises(ReplyTruncated, match="thought for 201 tokens") as caught:
        ask(endpoint, script, deltas=[])
    spent = caught.value.usage
    assert (spent.uncounted_calls, spent.completion_tokens, spent.reasoning_tokens) == (1, 201, 201)
    assert caught.value.retryable is False


def test_complete_stream_thinking_by_letter_is_not_overcounted(endpoint: Endpoint) -> None:
    script = make_stream(*({"reasoning": letter} for letter in "It may be so. " * 20), {"content": "Yes."})
    assert ask(endpoint, script, deltas=[]).text == "Yes."
