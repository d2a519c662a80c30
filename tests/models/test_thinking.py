"""Thinking apart from the answer: in one text, in fields of its own, and in its own room."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import ReplyEmpty, ReplyMisplaced, ReplyTruncated
from epicrisis.core.protocols import ChatReply, ChatRequest, Message
from epicrisis.models.chat.endpoints.reply import ThinkingSplitter, split_thinking
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
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
    request = ChatRequest(REQUEST.messages, max_tokens=50)
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


SCHEMA = {"type": "object", "properties": {"see": {"type": "boolean"}}, "required": ["see"]}
JSON = '{"see": true}'
DRAFT = 'It may see. {"see": false} No.'
CALL = [{"index": 0, "id": "1", "type": "function", "function": {"name": "reply", "arguments": JSON}}]
THINKS = "the model thinks, in the room of its answer: set max_reasoning_tokens"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("message", "note"),
    [
        ({"content": f"{DRAFT}\n</think>\n\n{JSON}"}, THINKS),
        ({"content": f"{DRAFT}[/THINK]{JSON}"}, THINKS),
        ({"content": f"[THINK]{DRAFT}[/THINK]{JSON}"}, THINKS),
        (
            {
                "content": f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant<|channel|>final"
                f"<|message|>{JSON}<|return|>"
            },
            "marks of the model's channels",
        ),
        ({"content": f"{DRAFT}<|end|><|start|>assistant<|channel|>final<|message|>{JSON}"}, "reasoning parser"),
        ({"content": f"analysis{DRAFT}assistantfinal{JSON}"}, "reasoning parser"),
        ({"content": None, "reasoning": JSON}, "sent the answer as thinking"),
        ({"content": "", "reasoning_content": JSON}, "sent the answer as thinking"),
        ({"content": None, "tool_calls": CALL}, "sent the answer as arguments of a tool call"),
    ],
)
def test_complete_answer_in_another_place_is_read_and_noted(
    endpoint: Endpoint, message: dict[str, object], note: str, streams: bool
) -> None:
    request = ChatRequest(REQUEST.messages, max_tokens=100, schema=SCHEMA)
    deltas: list[str | None] = []
    reply = ask(endpoint, make_stream(message) if streams else make_reply(message), request, deltas)
    assert (reply.text, reply.conforms, reply.finish_reason) == (JSON, True, "stop")
    assert [text for text in reply.notes if note in text]
    assert (
        "".join(delta or "" for delta in deltas[len(deltas) - deltas[::-1].index(None) if None in deltas else 0 :])
        == JSON
    )


def test_complete_answer_that_conforms_keeps_marks_within(endpoint: Endpoint) -> None:
    text = '{"see": true, "why": "it wrote </think> and <|channel|>final<|message|>{}"}'
    reply = ask(endpoint, make_reply({"content": text}), ChatRequest(REQUEST.messages, max_tokens=100, schema=SCHEMA))
    assert (reply.text, reply.notes) == (text, ())


def test_complete_stream_joins_pieces_of_a_tool_call(endpoint: Endpoint) -> None:
    functions = [{"name": "reply", "arguments": ""}, {"arguments": JSON[:5]}, {"arguments": JSON[5:]}]
    pieces = [{"tool_calls": [{"index": 0, "function": function}]} for function in functions]
    request = ChatRequest(REQUEST.messages, max_tokens=100, schema=SCHEMA)
    assert ask(endpoint, make_stream(*pieces, finish="tool_calls"), request, []).text == JSON


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("message", "cure"),
    [
        ({"content": "", "reasoning": "It may be."}, "only thinks, .*--reasoning-parser"),
        ({"content": None, "reasoning_content": '{"other": 1}'}, "only thinks, .*--reasoning-parser"),
        (
            {"content": None, "tool_calls": [{"function": {"name": "look_up", "arguments": "{}"}}]},
            "automatic tool calls",
        ),
    ],
)
def test_complete_without_text_fails_at_once_and_names_the_server_option(
    endpoint: Endpoint, message: dict[str, object], cure: str, streams: bool
) -> None:
    request = ChatRequest(REQUEST.messages, max_tokens=100, schema=SCHEMA)
    with pytest.raises(ReplyMisplaced, match=cure) as caught:
        ask(endpoint, make_stream(message) if streams else make_reply(message), request, [] if streams else None)
    assert caught.value.retryable is False


def test_complete_stream_that_ends_with_an_unsent_tool_call_fails_at_once(endpoint: Endpoint) -> None:
    with pytest.raises(ReplyMisplaced, match="automatic tool calls"):
        ask(endpoint, make_stream({"content": ""}, finish="tool_calls"), deltas=[])


def test_complete_only_tagged_thinking_raises_reply_empty(endpoint: Endpoint) -> None:
    with pytest.raises(ReplyEmpty, match="only thinks, without an answer: try again"):
        ask(endpoint, make_reply({"content": "<think>It may be.</think>"}))


@pytest.mark.parametrize("usage", [USAGE, None])
def test_complete_stream_with_end_needs_no_finish_reason(endpoint: Endpoint, usage: object) -> None:
    pieces = [{"content": "It may "}, {"content": "be."}]
    for finish in (None, "", "eos"):
        events: list[object] = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in pieces]
        events += [{"choices": [{"delta": {}, "finish_reason": finish}]}, {"choices": [], "usage": usage}]
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        for end in ("data: [DONE]\n\n", "") if usage else ("data: [DONE]\n\n",):
            reply = ask(endpoint, Scripted(text + end, kind="text/event-stream"), deltas=[])
            assert (reply.text, reply.finish_reason) == ("It may be.", finish or "stop")


def test_complete_without_finish_reason_at_the_limit_is_cut(endpoint: Endpoint) -> None:
    usage = USAGE | {"completion_tokens": 250}
    assert (
        ask(endpoint, make_stream({"content": "It may"}, finish=None, usage=usage), deltas=[]).finish_reason == "length"
    )


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
