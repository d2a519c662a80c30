"""The OpenAI-compatible endpoint: each strategy of each library is a model, and an answer is a chat completion.

    client = openai.OpenAI(base_url="http://127.0.0.1:8080/v1", api_key="unused")
    client.chat.completions.create(model="epicrisis/brief-context", messages=[...])

A follow-up question is completed from the conversation before the search. Answers are checked before they are sent, so
a stream has the steps first, as reasoning, and then the whole answer line by line.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from epicrisis.core.answers import Answer, Answered, Usage
from epicrisis.core.errors import EpicrisisError, InputError
from epicrisis.core.printable import printable_json
from epicrisis.server.api.error_handlers import OPENAI_PREFIX, OPENAI_RESPONSES, send_openai_error, to_openai_error
from epicrisis.server.api.housekeeping import answer_housekeeping, describe_housekeeping
from epicrisis.server.api.openai_reply import ReplyMessage, count_usage, describe_outcome, write_reply
from epicrisis.server.api.openai_request import ChatBody, Conversation, read_conversation
from epicrisis.server.api.question_api import DataResponse
from epicrisis.server.base.http_errors import (
    NotFound,
    UnsupportedParameter,
    describe_error,
    describe_failure,
    describe_refusal,
    describe_validation,
)
from epicrisis.server.base.users import Caller, CurrentCaller
from epicrisis.server.libraries.answer_steps import describe_step
from epicrisis.server.libraries.asked_questions import Inquiry, QuestionBody, Questions
from epicrisis.server.libraries.question_completion import COMPLETING, CompletedQuestion, complete
from epicrisis.server.libraries.resources import OpenLibrary
from epicrisis.server.libraries.streaming import EventStream, keep_alive, run_while_connected
from epicrisis.server.state.stored_answers import AnswerStore, store_answer

OWNER = "epicrisis"
ModelName = Annotated[str, Path(min_length=1, max_length=400, description="One of GET /v1/models.")]


@dataclass(frozen=True, slots=True)
class FinishedChat:
    """An answer as a chat completion."""

    answer: Answer | None
    """None: the client asked for a title or the like, and nothing was searched."""
    message: ReplyMessage
    usage: Mapping[str, Any]
    outcome: Mapping[str, Any]
    """The field `epicrisis` of the completion."""


class OpenAIRoute(APIRoute):
    """A route whose errors have the form of OpenAI's."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with errors as OpenAI's clients read them."""
        handle = super().get_route_handler()

        async def handle_with_errors(request: Request) -> Response:
            try:
                return await handle(request)
            except EpicrisisError as error:
                hide = request.app.state.questions.resources.hide_paths
                parameter = error.parameter if isinstance(error, UnsupportedParameter) else None
                return send_openai_error(describe_error(error, hide), parameter)
            except RequestValidationError as error:
                problem = describe_validation(error.errors())
                name = problem.detail.partition(":")[0]
                has_name = problem.status == 422 and name != "body"
                return send_openai_error(problem, name if has_name else None)
            except HTTPException as error:
                return send_openai_error(describe_refusal(error.status_code, str(error.detail)))

        return handle_with_errors


class Chats:
    """Answers conversations through `Questions`, and stores the answers, so that their citations have pages."""

    def __init__(self, questions: Questions, answers: AnswerStore) -> None:
        self.questions = questions
        self.resources = questions.resources
        self._answers = answers
        self._started = int(time.time())

    def list_models(self, caller: Caller) -> list[dict[str, Any]]:
        """Return the models that the caller may use, those of the first library first."""
        models: list[dict[str, Any]] = []
        for library in self.resources.libraries.values():
            if library.holds_patients and not caller.has("patient-reader"):
                continue
            is_default = library is self.resources.default
            for strategy in library.strategies:
                name = f"{OWNER}/{strategy}" if is_default else f"{OWNER}/{strategy}@{library.name}"
                models.append({"id": name, "object": "model", "created": self._started, "owned_by": OWNER})
        return models

    def find_model(self, name: str, library: str | None) -> tuple[OpenLibrary, str]:
        """Return the library and the strategy of a model. Raises NotFound, and InputError for two libraries."""
        owner, _, rest = name.partition("/")
        strategy, _, library_name = rest.partition("@")
        if library_name and library is not None and library != library_name:
            raise InputError("the model and the field epicrisis.library name different libraries: leave out one")
        open_library = self.resources.find(library_name or library)
        if owner != OWNER or strategy not in open_library.strategies:
            raise NotFound(f"there is no model {name!a}: GET /v1/models lists them")
        return open_library, strategy

    def check_model(self, body: ChatBody, caller: Caller) -> None:
        """Raise NotFound if the caller has no such model."""
        library, _ = self.find_model(body.model, body.epicrisis.library)
        if library.holds_patients and not caller.has("patient-reader"):
            raise NotFound(f"there is no model {body.model!a}: GET /v1/models lists them")

    async def prepare(self, body: ChatBody, conversation: Conversation, caller: Caller) -> Inquiry:
        """Return the last message as a question, checked for this caller. Raises as `Questions.prepare`."""
        extension = body.epicrisis
        library, strategy = self.find_model(body.model, extension.library)
        if extension.settings.strategy not in (None, strategy):
            raise InputError("the model names the strategy: leave out epicrisis.settings.settings.strategy")
        question = QuestionBody(
            question=conversation.question,
            options=extension.options,
            library=library.name,
            patient=extension.patient,
            settings=extension.settings.model_copy(update={"strategy": strategy}),
            break_glass=extension.break_glass,
        )
        return await self.questions.prepare(question, caller)

    async def answer(
        self, inquiry: Inquiry, conversation: Conversation, body: ChatBody, base: str, place: ExitStack
    ) -> AsyncGenerator[str | FinishedChat, None]:
        """Yield the steps in words, and last the finished chat. Closing the generator cancels the calls.

        `base` is the address of the server, `place` the one that was taken for the question. Raises the errors of
        `Questions.events`.
        """
        completed = CompletedQuestion(inquiry.question.text)
        if conversation.turns:
            yield COMPLETING
            patient = inquiry.question.patient
            completed = await complete(inquiry.pipeline, conversation.turns, conversation.question, patient)
            again = Conversation(completed.text)
            inquiry = await self.prepare(body, again, inquiry.caller)
        async with aclosing(self.questions.events(inquiry, place=place)) as events:
            async for event in events:
                if isinstance(event, Answered):
                    yield await self._finish(inquiry, event.answer, completed, conversation, base)
                    return
                step = describe_step(event)
                if step:
                    yield step

    async def answer_housekeeping(self, conversation: Conversation) -> AsyncGenerator[str | FinishedChat, None]:
        """Yield the reply to a request of the chat client for itself."""
        content = answer_housekeeping(conversation.question, conversation.turns)
        outcome = describe_housekeeping(conversation.unused)
        yield FinishedChat(None, ReplyMessage((content,), ()), count_usage(Usage()), outcome)

    async def _finish(
        self, inquiry: Inquiry, answer: Answer, completed: CompletedQuestion, conversation: Conversation, base: str
    ) -> FinishedChat:
        """Store the answer, and return it as a chat completion."""
        stored = await store_answer(self._answers, inquiry, answer)
        page = f"{base}answers/{stored.id}"
        message = write_reply(answer, completed, page, conversation.unused)
        outcome = describe_outcome(answer, completed, page, conversation.unused, inquiry.library.name)
        return FinishedChat(answer, message, count_usage(answer.usage + completed.usage), outcome)


def make_openai_routes(questions: Questions, answers: AnswerStore) -> APIRouter:
    """Return the routes of the endpoint."""
    router = APIRouter(
        prefix=OPENAI_PREFIX, tags=["OpenAI-compatible"], route_class=OpenAIRoute, responses={**OPENAI_RESPONSES}
    )
    chats = Chats(questions, answers)
    hide = questions.resources.hide_paths

    @router.get("/models", summary="List the models: one for each strategy")
    async def models(caller: CurrentCaller) -> DataResponse:
        """Return the models, one for each strategy of each library that the caller may read."""
        return DataResponse({"object": "list", "data": chats.list_models(caller)})

    @router.get("/models/{model:path}", summary="Describe a model")
    async def model(model: ModelName, caller: CurrentCaller) -> DataResponse:
        """Return one of the models."""
        for entry in chats.list_models(caller):
            if entry["id"] == model:
                return DataResponse(entry)
        raise NotFound("there is no model of this name: GET /v1/models lists them")

    @router.post("/chat/completions", summary="Answer the last message of a conversation", response_model=None)
    async def chat(body: ChatBody, request: Request, caller: CurrentCaller) -> Response:
        """Answer the last message from the documents of a library, whole or as a stream of chunks."""
        conversation = read_conversation(body)
        with ExitStack() as stack:
            if conversation.is_housekeeping:
                chats.check_model(body, caller)
                steps = chats.answer_housekeeping(conversation)
            else:
                inquiry = await chats.prepare(body, conversation, caller)
                place = questions.take_place(caller)
                stack.callback(place.close)
                steps = chats.answer(inquiry, conversation, body, str(request.base_url), place)
            head = {"id": f"chatcmpl-{secrets.token_urlsafe(16)}", "created": int(time.time()), "model": body.model}
            if body.stream:
                with_usage = body.stream_options is not None and body.stream_options.include_usage
                chunks = keep_alive(stream_chunks(steps, head, hide, with_usage=with_usage))
                return EventStream(chunks, on_end=stack.pop_all().close)
            finished = await run_while_connected(wait_for_chat(steps), request.receive)
        if finished.answer is not None and finished.answer.state == "failed":
            return send_openai_error(describe_failure(finished.answer.failure, hide))
        message = {
            "role": "assistant",
            "content": finished.message.content,
            "refusal": None,
            "annotations": finished.message.annotations,
        }
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        completion = {**head, "object": "chat.completion", "choices": [choice], "usage": finished.usage}
        return DataResponse({**completion, "epicrisis": finished.outcome})

    return router


async def wait_for_chat(steps: AsyncGenerator[str | FinishedChat, None]) -> FinishedChat:
    """Return the finished chat."""
    async with aclosing(steps):
        async for step in steps:
            if isinstance(step, FinishedChat):
                return step
    raise RuntimeError("the last step of a chat is its answer")


async def stream_chunks(
    steps: AsyncGenerator[str | FinishedChat, None],
    head: Mapping[str, Any],
    hide: Callable[[str], str],
    *,
    with_usage: bool,
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a completion: the steps as reasoning, then the checked answer line by line.

    An error is the last event, in OpenAI's form, without the mark of a complete stream.
    """

    def chunk(delta: Mapping[str, Any], finish: str | None = None, **members: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return encode_chunk({**head, "object": "chat.completion.chunk", "choices": [choice], **members})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, str):
                    yield chunk({"reasoning_content": f"{step}\n"})
                    continue
                if step.answer is not None and step.answer.state == "failed":
                    yield encode_chunk(to_openai_error(describe_failure(step.answer.failure, hide)))
                    return
                *lines, last = step.message.lines
                for line in lines:
                    yield chunk({"content": f"{line}\n"})
                yield chunk({"content": last, "annotations": step.message.annotations})
                yield chunk({}, "stop", epicrisis=step.outcome)
                if with_usage:
                    usage = {**head, "object": "chat.completion.chunk", "choices": [], "usage": step.usage}
                    yield encode_chunk(usage)
                yield b"data: [DONE]\n\n"
    except EpicrisisError as error:
        yield encode_chunk(to_openai_error(describe_error(error, hide)))


def encode_chunk(data: Mapping[str, Any]) -> bytes:
    """Return an event of a stream in the wire format."""
    return f"data: {printable_json(json.dumps(data, ensure_ascii=False))}\n\n".encode()
