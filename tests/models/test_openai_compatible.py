"""The OpenAI-compatible client against a real server on loopback that is healthy, strange or hostile as told."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from epicrisis.core.errors import (
    ContextOverflow,
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    EpicrisisError,
    NetworkRefused,
    ReplyEmpty,
    ReplyInvalid,
    ReplyWithheld,
)
from epicrisis.core.protocols import ChatReply, ChatRequest, Message
from epicrisis.models.chat.endpoints.connection import OpeningPace
from epicrisis.models.chat.endpoints.failures import is_overflow, parse_error_body
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel, derive_seed
from epicrisis.system.local_only import set_local_only
from tests.support.loopback import USAGE, Endpoint, Scripted, completion, sse

T = TypeVar("T")

SECRET = "Mrs. Almeida of Rua Augusta has a rare disease"
REQUEST = ChatRequest((Message("user", SECRET),), max_tokens=10, seed=7)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def run_with_model(model: OpenAICompatibleModel, work: Callable[[OpenAICompatibleModel], Awaitable[T]]) -> T:
    async def run() -> T:
        try:
            return await work(model)
        finally:
            await model.aclose()

    return asyncio.run(run())


def complete(
    endpoint: Endpoint, *script: Scripted, request: ChatRequest = REQUEST, deltas: list[str | None] | None = None
) -> ChatReply:
    endpoint.script["/v1/chat/completions"] = list(script)
    model = OpenAICompatibleModel(endpoint.url, "asked", timeout_seconds=5)
    return run_with_model(model, lambda it: it.complete(request, None if deltas is None else deltas.append))


# -- healthy --------------------------------------------------------------------------------------------------------


def test_complete_each_call_opens_new_connection(endpoint: Endpoint) -> None:
    async def twice(model: OpenAICompatibleModel) -> None:
        await model.complete(REQUEST)
        await model.complete(REQUEST)

    endpoint.script["/v1/chat/completions"] = [Scripted(completion("Yes.", usage=USAGE))]
    run_with_model(OpenAICompatibleModel(endpoint.url, "asked", timeout_seconds=5), twice)
    assert len(endpoint.connections) == 2


def test_complete_returns_reply_with_usage(endpoint: Endpoint) -> None:
    reply = complete(endpoint, Scripted(completion("Yes.", usage=USAGE)))
    assert (reply.text, reply.finish_reason, reply.model) == ("Yes.", "stop", "served")
    spent = reply.usage
    assert (spent.calls, spent.failed_calls, spent.cost) == (1, 0, 0.0)
    assert (spent.prompt_tokens, spent.cached_tokens, spent.completion_tokens) == (50, 20, 4)
    assert spent.seconds > 0
    sent = endpoint.bodies("/v1/chat/completions")[0]
    assert sent == {
        "model": "asked",
        "messages": [{"role": "user", "content": SECRET}],
        "max_tokens": 10,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 7,
    }


def test_complete_stream_delivers_deltas_and_whole_reply(endpoint: Endpoint) -> None:
    deltas: list[str | None] = []
    script = Scripted(sse("Ye", "s.", usage=USAGE), kind="text/event-stream")
    reply = complete(endpoint, script, deltas=deltas)
    assert (deltas, reply.text, reply.finish_reason, reply.model) == (["Ye", "s."], "Yes.", "stop", "served")
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens, reply.usage.completion_tokens) == (50, 20, 4)
    assert endpoint.bodies("/v1/chat/completions")[0]["stream_options"] == {"include_usage": True}


def test_derive_seed_samples_get_distinct_seeds() -> None:
    seeds = [derive_seed(ChatRequest((), max_tokens=1, seed=7, sample=sample)) for sample in range(50)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 50
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_complete_reply_cut_by_length_is_returned(endpoint: Endpoint) -> None:
    assert complete(endpoint, Scripted(completion("Yes, bec", "length"))).finish_reason == "length"
    assert complete(endpoint, Scripted(completion("", "length"))).text == ""


def test_complete_extra_parameters_are_sent(endpoint: Endpoint) -> None:
    request = ChatRequest(REQUEST.messages, max_tokens=10, extra={"min_p": 0.1})
    complete(endpoint, Scripted(completion("Yes.")), request=request)
    assert endpoint.bodies("/v1/chat/completions")[0]["min_p"] == 0.1


def test_complete_without_model_name_uses_first_listed_model(endpoint: Endpoint) -> None:
    endpoint.script["/v1/models"] = [Scripted({"data": [{"id": "first"}, {"id": "second"}]})]
    endpoint.script["/v1/chat/completions"] = [Scripted(completion("Yes."))]
    run_with_model(OpenAICompatibleModel(f"{endpoint.url}/v1/"), lambda it: it.complete(REQUEST))
    assert endpoint.bodies("/v1/chat/completions")[0]["model"] == "first"


@pytest.mark.parametrize(
    "listed", [{"data": []}, {"data": None}, {"data": [{"id": 5}]}, [1, 2], "<html>Welcome</html>"]
)
def test_complete_without_listed_model_explains_how_to_name_one(endpoint: Endpoint, listed: object) -> None:
    kind = "text/html" if isinstance(listed, str) else "application/json"
    endpoint.script["/v1/models"] = [Scripted(listed, kind=kind)]
    with pytest.raises(EndpointRejected, match=r"lists no model.*#NAME"):
        run_with_model(OpenAICompatibleModel(endpoint.url), lambda it: it.complete(REQUEST))


def test_complete_works_in_several_event_loops(endpoint: Endpoint) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted(completion("Yes."))]
    model = OpenAICompatibleModel(endpoint.url, "asked")
    texts = [asyncio.run(model.complete(REQUEST)).text for _ in range(2)]
    run_with_model(model, lambda it: it.aclose())
    assert texts == ["Yes.", "Yes."]


def test_complete_sends_only_configured_key(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-someone-else")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin-of-someone-else")
    endpoint.script["/v1/chat/completions"] = [Scripted(completion("Yes.", usage=USAGE))]
    run_with_model(OpenAICompatibleModel(endpoint.url, "m"), lambda it: it.complete(REQUEST))
    run_with_model(OpenAICompatibleModel(endpoint.url, "m", lambda: "sk-mine"), lambda it: it.complete(REQUEST))
    headers = [headers for _, _, headers in endpoint.asked]
    assert [header["authorization"] for header in headers] == ["Bearer none", "Bearer sk-mine"]
    assert "someone-else" not in str(headers)


def test_complete_local_endpoint_bypasses_proxy(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert complete(endpoint, Scripted(completion("Yes."))).text == "Yes."


# -- schemas --------------------------------------------------------------------------------------------------------


def test_complete_schema_is_sent_as_strict_response_format(endpoint: Endpoint) -> None:
    request = ChatRequest(REQUEST.messages, max_tokens=10, schema=SCHEMA)
    complete(endpoint, Scripted(completion('{"a": 1}')), request=request)
    sent = endpoint.bodies("/v1/chat/completions")[0]["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": SCHEMA}}


def test_complete_rejected_schema_is_omitted_in_later_calls(endpoint: Endpoint) -> None:
    refusal = Scripted({"error": {"message": "'response_format.type' must be 'text'"}}, 400)
    endpoint.script["/v1/chat/completions"] = [refusal, Scripted(completion("no JSON", usage=USAGE))]
    request = ChatRequest(REQUEST.messages, max_tokens=10, schema=SCHEMA)

    async def twice(model: OpenAICompatibleModel) -> tuple[ChatReply, ChatReply, bool]:
        first, second = await model.complete(request), await model.complete(request)
        return first, second, (await model.capabilities()).json_schema

    first, second, takes_schema = run_with_model(OpenAICompatibleModel(endpoint.url, "m"), twice)
    assert [("response_format" in body) for body in endpoint.bodies("/v1/chat/completions")] == [True, False, False]
    assert (first.usage.calls, first.usage.failed_calls) == (2, 1)
    assert (second.text, second.usage.calls, takes_schema) == ("no JSON", 1, False)


# -- what goes wrong ------------------------------------------------------------------------------------------------

OVERFLOWS = {
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9031,
            "n_ctx": 8192,
        }
    },
    "openai": {"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}},
    "vllm": {
        "object": "error",
        "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "type": "BadRequestError",
        "code": 400,
    },
}

FAILURES: list[tuple[Scripted, type[EpicrisisError], str]] = [
    (Scripted("<html><body>It works!</body></html>", kind="text/html"), ReplyInvalid, "is its URL right"),
    (Scripted('{"choices": [', 200), ReplyInvalid, "did not send a chat reply"),
    (Scripted([1, 2]), ReplyInvalid, "did not send a chat reply"),
    (Scripted({"choices": []}), ReplyInvalid, "without a choice"),
    (Scripted({"choices": [{"text": "an old completion"}]}), ReplyInvalid, "without a choice"),
    (Scripted(completion("")), ReplyEmpty, "empty text"),
    (Scripted(completion(None)), ReplyEmpty, "empty text"),
    (Scripted(completion("No", "content_filter")), ReplyWithheld, "content filter"),
    (Scripted(completion("Half a", "abort")), ReplyInvalid, "stopped in the middle"),
    (Scripted(completion("Half a", "error")), ReplyInvalid, "stopped in the middle"),
    (Scripted({"error": {"message": "slow down"}}, 429), EndpointBusy, "slow down"),
    (Scripted("<html>Bad gateway</html>", 502, "text/html"), EndpointBusy, "502"),
    (Scripted({"error": {"message": "boom"}}, 500), EndpointBusy, "boom"),
    (Scripted({"error": {"message": "Incorrect key: sk-abc"}}, 401), EndpointRejected, "api_key_env"),
    (Scripted({"error": {"message": "forbidden"}}, 403), EndpointRejected, "api_key_env"),
    (Scripted({"error": {"message": "model `x` does not exist"}}, 404), EndpointRejected, "model `x` does not exist"),
    (Scripted({"error": {"message": "max_tokens must be positive"}}, 400), EndpointRejected, "max_tokens must be"),
    (Scripted(OVERFLOWS["llama.cpp"], 400), ContextOverflow, "9031 tokens, the window holds 8192"),
    (Scripted(OVERFLOWS["openai"], 400), ContextOverflow, "larger window"),
    (Scripted(OVERFLOWS["vllm"], 400), ContextOverflow, "larger window"),
]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            422,
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
        ),
        (422, "Input validation error: `inputs` must have less than 1024 tokens. Given: 1236"),
        (500, "Prompt length (5000) exceeds maximum input length (2048). Set log level to info"),
        (400, "default_max_tokens (-100) should be greater than 0: max_seq_len (2048) - splited_prompt_len (2148)"),
        (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
        (400, "Invalid request: Your request exceeded model token limit: 8192 (requested: 10000)"),
        (400, "InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]"),
        (400, "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs."),
        (500, "litellm.ContextWindowExceededError: litellm.BadRequestError"),
        (400, "Prompt is too long (9000 tokens)"),
        (500, "Requested tokens (5000) exceed context window of 4096"),
        (500, "the request exceeds the available context size. try increasing the context size"),
        (None, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"),
        (500, "the prompt does not fit in the KV cache"),
    ],
)
def test_prompt_that_does_not_fit_is_recognised_by_the_words_of_the_server(status: int | None, message: str) -> None:
    assert is_overflow(parse_error_body({"error": {"message": message}}, status))


def test_long_prompt_is_recognised_in_a_list_of_errors() -> None:
    message = "the number of input tokens 9000 cannot exceed the total tokens limit 8192"
    body = {"errors": [{"code": "invalid_input_argument", "message": message}], "status_code": 400}
    assert is_overflow(parse_error_body(body, 400))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "max_tokens is too large: 50. This model supports at most 16 completion tokens"),
        (400, "Range of max_tokens should be [1, 8192]"),
        (400, "max_completion_tokens exceeds the maximum number of output tokens"),
        (422, "Input should be less than or equal to 2"),
        (400, "image input is too large"),
        (500, "CUDA out of memory, context length 8192"),
        (503, "Too many tokens per minute"),
        (503, "The service exceeded its maximum concurrency of prompts"),
        (429, "Prompt tokens exceed the limit"),
        (401, "token exceeded its time"),
        (500, "Request exceeded the time limit"),
        (500, "the request exceeded its deadline: timed out"),
    ],
)
def test_other_refusal_is_not_taken_for_a_long_prompt(status: int, message: str) -> None:
    assert not is_overflow(parse_error_body({"error": {"message": message}}, status))


@pytest.mark.parametrize(
    ("script", "kind", "message", "streams"),
    [(*failure, False) for failure in FAILURES]
    + [(*failure, True) for failure in FAILURES if failure[0].status != 200],
)
def test_complete_failure_raises_typed_one_line_error_with_usage(
    endpoint: Endpoint, script: Scripted, kind: type[EpicrisisError], message: str, streams: bool
) -> None:
    with pytest.raises(kind, match=message) as caught:
        complete(endpoint, script, deltas=[] if streams else None)
    error = caught.value
    assert type(error) is kind
    assert endpoint.url in error.message
    assert "\n" not in error.message
    assert "<" not in error.message
    assert (error.usage.calls, error.usage.failed_calls) == (1, 1)


BROKEN_STREAMS: list[tuple[Scripted, type[EpicrisisError], str]] = [
    (Scripted("<html>It works!</html>", kind="text/html"), ReplyInvalid, "no chat endpoint"),
    (
        Scripted(sse("Ye", finish=None).partition("data: [DONE]")[0], kind="text/event-stream"),
        ReplyInvalid,
        "broke off",
    ),
    (Scripted("data: {nonsense\n\n", kind="text/event-stream"), ReplyInvalid, "did not send a chat reply"),
    (Scripted(sse(), kind="text/event-stream"), ReplyEmpty, "empty text"),
    (Scripted(sse("No", finish="content_filter"), kind="text/event-stream"), ReplyWithheld, "content filter"),
    (
        Scripted('data: {"error": {"code": 500, "message": "slot died"}}\n\n', kind="text/event-stream"),
        EndpointBusy,
        "slot died",
    ),
]


@pytest.mark.parametrize(("script", "kind", "message"), BROKEN_STREAMS)
def test_complete_broken_stream_raises_error(
    endpoint: Endpoint, script: Scripted, kind: type[EpicrisisError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        complete(endpoint, script, deltas=[])


@pytest.mark.parametrize("start", range(150, 230, 7))
def test_complete_error_quotation_cut_inside_prompt_is_not_quoted(endpoint: Endpoint, start: int) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted({"error": {"message": f"{'so ' * 99}"[:start] + SECRET}}, 400)]
    with pytest.raises(EndpointRejected, match="rejects the request") as caught:
        run_with_model(OpenAICompatibleModel(endpoint.url, "m"), lambda it: it.complete(REQUEST))
    assert SECRET[:3] not in caught.value.message


def test_complete_error_with_escaped_prompt_is_not_quoted(endpoint: Endpoint) -> None:
    request = ChatRequest((Message("user", "张三丰患有一种非常罕见的遗传性血液疾病并且正在接受治疗"),), max_tokens=5)
    echo = f"invalid input: {json.dumps(request.messages[0].content)}"
    endpoint.script["/v1/chat/completions"] = [Scripted({"error": {"message": echo}}, 400)]
    with pytest.raises(EndpointRejected, match=r"rejects the request \(400\): check"):
        run_with_model(OpenAICompatibleModel(endpoint.url, "m"), lambda it: it.complete(request))


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500])
@pytest.mark.parametrize("echo", [SECRET, f"bad input: '{SECRET[10:40]}'", "the key sk-mine is bad"])
def test_complete_error_message_excludes_prompt_and_key(endpoint: Endpoint, status: int, echo: str) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted({"error": {"message": echo}}, status)]
    model = OpenAICompatibleModel(endpoint.url, "m", lambda: "sk-mine")
    with pytest.raises(EpicrisisError, match="127") as caught:
        run_with_model(model, lambda it: it.complete(REQUEST))
    assert echo not in caught.value.message
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("streams", [False, True])
def test_complete_hanging_endpoint_raises_timeout(endpoint: Endpoint, streams: bool) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted(sse("Ye", finish=None), kind="text/event-stream", hangs=True)]
    deltas: list[str | None] = []
    model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=0.3)
    with pytest.raises(EndpointTimeout, match=r"0\.3 s") as caught:
        run_with_model(model, lambda it: it.complete(REQUEST, deltas.append if streams else None))
    assert deltas == (["Ye"] if streams else [])
    assert caught.value.retryable


def test_complete_without_server_raises_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(EndpointUnreachable, match=f"nothing answers at {url}.*--model"):
            run_with_model(OpenAICompatibleModel(url, "m"), lambda it: it.complete(REQUEST))


def test_complete_local_only_raises_network_refused() -> None:
    set_local_only(True)
    try:
        for url in ("http://192.0.2.1/v1", "http://models.example/v1"):
            with pytest.raises(NetworkRefused, match="--local-only"):
                run_with_model(OpenAICompatibleModel(url, "m"), lambda it: it.complete(REQUEST))
    finally:
        set_local_only(False)


# -- counting -------------------------------------------------------------------------------------------------------


def test_capabilities_llama_cpp_counts_tokens_and_reports_window(endpoint: Endpoint) -> None:
    endpoint.script |= {
        "/props": [Scripted({"default_generation_settings": {"n_ctx": 4096}})],
        "/apply-template": [Scripted({"prompt": "<user>hello"})],
        "/tokenize": [Scripted({"tokens": [1, 2, 3]})],
    }

    async def ask(model: OpenAICompatibleModel) -> tuple[int, int | None, bool]:
        capabilities = await model.capabilities()
        return await model.count_tokens(REQUEST.messages), capabilities.context_tokens, capabilities.exact_token_counts

    assert run_with_model(OpenAICompatibleModel(endpoint.url, "m"), ask) == (3, 4096, True)
    assert endpoint.bodies("/apply-template")[-1]["messages"][0]["content"] == SECRET
    assert endpoint.bodies("/tokenize")[-1]["content"] == "<user>hello"
    assert run_with_model(OpenAICompatibleModel(endpoint.url, "m", context_tokens=1000), ask)[1] == 1000


def test_capabilities_vllm_counts_tokens_and_reports_window(endpoint: Endpoint) -> None:
    endpoint.script |= {
        "/v1/models": [Scripted({"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 2048}]})],
        "/tokenize": [Scripted({"count": 17, "max_model_len": 2048, "tokens": [0] * 17})],
    }

    async def ask(model: OpenAICompatibleModel) -> tuple[int, int | None, bool]:
        capabilities = await model.capabilities()
        return await model.count_tokens(REQUEST.messages), capabilities.context_tokens, capabilities.exact_token_counts

    assert run_with_model(OpenAICompatibleModel(endpoint.url, "m"), ask) == (17, 2048, True)
    assert endpoint.bodies("/tokenize")[-1]["messages"][0]["content"] == SECRET


def test_capabilities_without_tokenizer_count_is_upper_estimate(endpoint: Endpoint) -> None:
    async def ask(model: OpenAICompatibleModel) -> tuple[int, int | None, bool]:
        capabilities = await model.capabilities()
        return await model.count_tokens(REQUEST.messages), capabilities.context_tokens, capabilities.exact_token_counts

    expected = -(-len(SECRET.encode()) // 3) + 8
    assert run_with_model(OpenAICompatibleModel(endpoint.url, "m"), ask) == (expected, None, False)
    assert run_with_model(OpenAICompatibleModel(endpoint.url, "m", context_tokens=512), ask) == (expected, 512, False)


def test_capabilities_are_probed_once(endpoint: Endpoint) -> None:
    async def ask(model: OpenAICompatibleModel) -> None:
        await model.capabilities()
        request_count = len(endpoint.asked)
        await model.capabilities()
        assert len(endpoint.asked) == request_count > 0

    run_with_model(OpenAICompatibleModel(endpoint.url, "m"), ask)


@pytest.mark.parametrize("streams", [False, True])
def test_complete_reply_without_usage_is_counted(endpoint: Endpoint, streams: bool) -> None:
    script = Scripted(sse("Yes", "."), kind="text/event-stream") if streams else Scripted(completion("Yes."))
    spent = complete(endpoint, script, deltas=[] if streams else None).usage
    assert spent.prompt_tokens == -(-len(SECRET.encode()) // 3) + 8
    assert (spent.completion_tokens, spent.cached_tokens, spent.calls) == (2, 0, 1)


def test_connections_of_the_same_moment_are_spread_for_servers_with_a_short_queue() -> None:
    pace = OpeningPace()
    waits = [pace.reserve(10.0) for _ in range(6)]
    assert waits == pytest.approx([0, 0, 0, 0.004, 0.008, 0.012])
    assert pace.reserve(11.0) == 0
    assert [pace.reserve(11.0) for _ in range(3)] == pytest.approx([0, 0, 0.004])
