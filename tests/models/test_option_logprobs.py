"""Next-token answering: how probable each option is, from what endpoints tell of tokens."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import EndpointRejected
from epicrisis.core.protocols import ChatReply, ChatRequest, Message, OptionLogprobs
from epicrisis.models.chat.embedded import EmbeddedModel
from epicrisis.models.chat.endpoints.probing import build_messages
from epicrisis.models.chat.endpoints.reply import compute_option_logprobs
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from tests.support.loopback import Endpoint, Scripted

LETTERS = ("A", "B", "C", "D")
REQUEST = ChatRequest((Message("user", "Which?"),), max_tokens=50, temperature=0.7, top_p=0.5, options=LETTERS)


def compute_logs(**probabilities: float) -> dict[str, float]:
    return {name: math.log(value) for name, value in probabilities.items()}


def round_probabilities(logprobs: OptionLogprobs) -> dict[str, float]:
    return {option: round(math.exp(value), 6) for option, value in logprobs.values.items()}


def test_option_logprobs_variants_of_one_letter_are_summed() -> None:
    tokens = [
        *[("A", 0.10), (" A", 0.05), ("▁A", 0.05), ("ĠA", 0.04), ("a", 0.03), ("(A", 0.02), ('"A"', 0.01)],
        *[("B", 0.2), ("b)", 0.1), ("The", 0.3), ("AB", 0.05), ("", 0.01)],
    ]
    logprobs = compute_option_logprobs(LETTERS, [(token, math.log(probability)) for token, probability in tokens])
    assert round_probabilities(logprobs) == {"A": 0.5, "B": 0.5}
    assert logprobs.mass == pytest.approx(0.6)
    assert logprobs.missing == ("C", "D")


def test_option_logprobs_case_matters_only_for_options_that_differ_in_case() -> None:
    assert set(compute_option_logprobs(("A", "a"), [("A", -1.0), ("a", -2.0)]).values) == {"A", "a"}
    assert set(compute_option_logprobs(("yes", "no"), [(" YES", -1.0), ("No", -2.0)]).values) == {"yes", "no"}
    assert round_probabilities(compute_option_logprobs(("b", "C"), [("B", -1.0)])) == {"b": 1.0}


def test_option_logprobs_options_without_tokens_are_missing() -> None:
    assert compute_option_logprobs(LETTERS, [("The", -0.1)]) == OptionLogprobs({}, 0.0, LETTERS)
    assert compute_option_logprobs(("Insulin", "Infliximab"), [("In", -0.1), ("Ins", -3.0)]).missing == (
        "Insulin",
        "Infliximab",
    )
    assert compute_option_logprobs(LETTERS, [("A", -9999.0), ("B", -math.inf), ("C", math.nan)]).missing == LETTERS


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(LETTERS), st.floats(-30, -1.5), min_size=1))
def test_option_logprobs_probabilities_sum_to_one(tokens: dict[str, float]) -> None:
    logprobs = compute_option_logprobs(LETTERS, tokens.items())
    assert sum(math.exp(value) for value in logprobs.values.values()) == pytest.approx(1)
    assert logprobs.mass == pytest.approx(sum(math.exp(value) for value in tokens.values()))
    assert {*logprobs.values, *logprobs.missing} == set(LETTERS)
    assert tokens[max(logprobs.values, key=lambda option: logprobs.values[option])] == max(tokens.values())


# -- on the wire ----------------------------------------------------------------------------------------------------


def reply(first: str, tokens: dict[str, float], **message: Any) -> dict[str, Any]:
    rows = [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in tokens.items()]
    position = {"token": first, "logprob": tokens.get(first, -5.0), "top_logprobs": rows}
    choice = {"message": {"content": first} | message, "finish_reason": "length", "logprobs": {"content": [position]}}
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}


def ask(endpoint: Endpoint, *script: Scripted, times: int = 1, **settings: Any) -> tuple[list[ChatReply], bool | None]:
    endpoint.script["/v1/chat/completions"] = list(script)

    async def run() -> tuple[list[ChatReply], bool | None]:
        model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=5, **settings)
        try:
            replies = [await model.complete(REQUEST) for _ in range(times)]
            return replies, (await model.capabilities()).option_logprobs
        finally:
            await model.aclose()

    return asyncio.run(run())


def test_complete_with_options_requests_one_undistorted_token(endpoint: Endpoint) -> None:
    (answer,), capable = ask(endpoint, Scripted(reply("B", compute_logs(A=0.3, B=0.3, The=0.4))))
    assert answer.option_logprobs is not None
    assert round_probabilities(answer.option_logprobs) == {"A": 0.5, "B": 0.5}
    assert (answer.text, capable) == ("", True)
    assert endpoint.bodies("/v1/chat/completions") == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Which?"}],
            "max_tokens": 1,
            "temperature": 1.0,
            "top_p": 1.0,
            "logprobs": True,
            "top_logprobs": 20,
        }
    ]


def test_complete_with_options_sampled_token_counts_outside_top_logprobs(endpoint: Endpoint) -> None:
    (answer,), _ = ask(endpoint, Scripted(reply("D", compute_logs(A=0.3, The=0.4))))
    assert answer.option_logprobs is not None
    assert set(answer.option_logprobs.values) == {"A", "D"}


def test_complete_with_options_duplicate_token_texts_are_summed(endpoint: Endpoint) -> None:
    """A tokenizer that puts blanks into its tokens has `A` twice, and may tell both without the blank."""
    body = reply("A", {})
    rows = [("A", 0.5), ("B", 0.2), ("A", 0.1)]
    tokens = [{"token": token, "logprob": math.log(probability)} for token, probability in rows]
    body["choices"][0]["logprobs"]["content"] = [{**tokens[0], "top_logprobs": tokens}]
    (answer,), _ = ask(endpoint, Scripted(body))
    assert answer.option_logprobs is not None
    assert round_probabilities(answer.option_logprobs) == {"A": 0.75, "B": 0.25}
    assert answer.option_logprobs.mass == pytest.approx(0.8)


TOO_MANY = {
    "message": "Requested sample logprobs of 20, which is greater than max allowed: 5",
    "type": "BadRequestError",
    "code": 400,
}


def test_complete_with_options_too_many_logprobs_requests_fewer(endpoint: Endpoint) -> None:
    replies, _ = ask(endpoint, Scripted(TOO_MANY, 400), Scripted(reply("A", compute_logs(A=0.9))), times=2)
    limits = [body["top_logprobs"] for body in endpoint.bodies("/v1/chat/completions")]
    assert limits == [20, 5, 5]
    assert [answer.usage.failed_calls for answer in replies] == [1, 0]


@pytest.mark.parametrize(
    "script",
    [
        Scripted({"choices": [{"message": {"content": "A"}, "finish_reason": "length"}]}),
        Scripted({"choices": [{"message": {"content": "A"}, "finish_reason": "length", "logprobs": {"tokens": []}}]}),
        Scripted({"choices": [{"message": {"content": "A"}, "finish_reason": "length", "logprobs": {"content": []}}]}),
        Scripted({"error": {"message": "`logprobs` is not supported with this model", "param": "logprobs"}}, 400),
        Scripted({"error": {"message": "You are not allowed to request logprobs from this model."}}, 403),
    ],
)
def test_complete_with_options_endpoint_without_logprobs_is_called_once(endpoint: Endpoint, script: Scripted) -> None:
    endpoint.script["/v1/chat/completions"] = [script]

    async def run() -> bool | None:
        model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=5)
        for calls in (1, 0):
            with pytest.raises(
                EndpointRejected, match=r"reports no token probabilities: use another model, or a strategy"
            ) as caught:
                await model.complete(REQUEST)
            assert (caught.value.usage.calls, caught.value.usage.failed_calls) == (calls, calls)
        capable = (await model.capabilities()).option_logprobs
        await model.aclose()
        return capable

    assert asyncio.run(run()) is False
    assert len(endpoint.bodies("/v1/chat/completions")) == 1


def test_complete_with_options_declared_unsupported_sends_nothing(endpoint: Endpoint) -> None:
    with pytest.raises(EndpointRejected, match="reports no token probabilities"):
        ask(endpoint, Scripted(reply("A", compute_logs(A=0.9))), option_logprobs=False)
    assert endpoint.asked == []


@pytest.mark.parametrize(
    "script",
    [
        Scripted(reply("<think>", compute_logs(A=0.1))),
        Scripted(reply("It", compute_logs(A=0.1), content=None, reasoning="It")),
    ],
)
def test_complete_with_options_reasoning_model_raises_endpoint_rejected(endpoint: Endpoint, script: Scripted) -> None:
    with pytest.raises(EndpointRejected, match=r"thinks before it answers.*turn its thinking off"):
        ask(endpoint, script)


def test_chat_request_with_options_and_schema_raises_value_error() -> None:
    """Probabilities told under a grammar are those before its mask."""
    with pytest.raises(ValueError, match="option probabilities cannot be requested under a schema"):
        ChatRequest(REQUEST.messages, max_tokens=1, options=LETTERS, schema={"enum": ["A", "B"]})


# -- for real -------------------------------------------------------------------------------------------------------


WHICH = "Which drug is an antiplatelet?\nA. Aspirin\nB. Insulin\nC. Penicillin\nD. Codeine\nAnswer with a letter."


@pytest.mark.long
@pytest.mark.models
def test_embedded_model_option_logprobs_ignore_sampler_settings(model_home: Path) -> None:
    samplers: list[dict[str, Any]] = [{}, {"temperature": 0.0, "top_k": 1, "top_p": 0.05}, {"temperature": 2.0}]

    async def run() -> list[OptionLogprobs | None]:
        model = EmbeddedModel(model_home / "models" / "smollm2-135m" / "model.gguf", "smollm2-135m", 512)
        messages = (Message("user", WHICH),)
        # The first fills the prefix cache; with it, figures differ in the second digit.
        await model.complete(ChatRequest(messages, max_tokens=1))
        replies = [
            await model.complete(ChatRequest(messages, max_tokens=1, options=LETTERS, extra=extra))
            for extra in samplers
        ]
        await model.aclose()
        return [reply.option_logprobs for reply in replies]

    first, *others = asyncio.run(run())
    assert first is not None
    assert others == [first, first]
    assert first.missing == ()
    assert 0.5 < first.mass <= 1
    assert sum(math.exp(value) for value in first.values.values()) == pytest.approx(1)


@pytest.mark.long
@pytest.mark.models
def test_embedded_model_option_logprobs_match_raw_completion(model_home: Path) -> None:
    """llama.cpp's own path tells as many tokens as are wanted, and no template is between."""

    async def run() -> tuple[OptionLogprobs | None, list[dict[str, Any]]]:
        model = EmbeddedModel(model_home / "models" / "smollm2-135m" / "model.gguf", "smollm2-135m", 512)
        messages = (Message("user", WHICH),)
        await model.complete(ChatRequest(messages, max_tokens=1))
        logprobs = (await model.complete(ChatRequest(messages, max_tokens=1, options=LETTERS))).option_logprobs
        server = (await model._get_client())._open_session().connection
        prompt: Any = await server.post(f"{model._address}/apply-template", {"messages": build_messages(messages)})
        raw: Any = await server.post(f"{model._address}/completion", {**prompt, "n_predict": 1, "n_probs": 5000})
        await model.aclose()
        return logprobs, raw["completion_probabilities"][0]["top_logprobs"]

    logprobs, rows = asyncio.run(run())
    assert logprobs is not None
    letters = [
        (row["token"].strip(), math.exp(row["logprob"])) for row in rows if row["token"].strip().upper() in LETTERS
    ]
    assert {" A", "A"} <= {row["token"] for row in rows}
    mass = sum(probability for _, probability in letters)
    assert logprobs.mass == pytest.approx(mass, abs=0.01)
    for option, value in logprobs.values.items():
        assert math.exp(value) == pytest.approx(
            sum(probability for letter, probability in letters if letter.upper() == option) / mass, abs=0.01
        )
