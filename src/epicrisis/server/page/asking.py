"""Ask questions from the page: the form, and the follow-up question under an answer.

Without JavaScript the response is the address of the answer, else a stream of parts of the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from epicrisis.answering.follow_up import ConversationTurn
from epicrisis.core.answers import Answered
from epicrisis.core.errors import EpicrisisError, InputError
from epicrisis.report.answer_content import describe_choice
from epicrisis.server.api.openai_request import keep_newest
from epicrisis.server.base.http_errors import describe_error
from epicrisis.server.base.users import Caller, CurrentCaller
from epicrisis.server.libraries.asked_questions import Inquiry, QuestionBody, Questions
from epicrisis.server.libraries.question_completion import COMPLETING, complete
from epicrisis.server.libraries.streaming import EventStream, keep_alive, run_while_connected
from epicrisis.server.page.answer_routes import AnswerPages
from epicrisis.server.page.answer_view import build_answer_view
from epicrisis.server.page.exports import list_exports
from epicrisis.server.page.found_sentences import render_found
from epicrisis.server.page.live import (
    LiveAnswer,
    add_step,
    frame,
    replace_follow_up_form,
    replace_question,
    show_found,
)
from epicrisis.server.page.page_route import is_part
from epicrisis.server.page.question_form import FormFields, build_form
from epicrisis.server.page.rendering import html_response, render
from epicrisis.server.state.stored_answers import FollowUp, StoredAnswer, store_answer

NEEDS_PATIENT = (
    "this library holds patients' notes: fill in the field \u201cPatient\u201d. The link beside it lists the patients."
)
_FILTERS = ("k", "since", "types")


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """A question of the page, checked for its caller."""

    inquiry: Inquiry
    body: QuestionBody
    settings: Mapping[str, str] = field(default_factory=dict)
    """The filters of the form that are filled in. A follow-up question has the same."""
    previous: StoredAnswer | None = None
    """The answer that the question follows."""

    def start_live(self, *, shows_found: bool = False) -> LiveAnswer:
        """Return the part of the page that shows the question while it is answered."""
        question = self.inquiry.question
        words = question.text if self.previous is not None else ""
        return LiveAnswer(question.text, question.options, words, shows_found=shows_found)


def add_asking(router: APIRouter, questions: Questions, pages: AnswerPages) -> None:
    """Add the routes that answer the form and a follow-up: as a stream of page parts, or with the answer's address."""
    resources = questions.resources

    async def respond(request: Request, question: PageQuestion) -> Response:
        if "text/event-stream" in request.headers.get("Accept", ""):
            return EventStream(keep_alive(_stream_page(questions, pages, question)))
        stored = await run_while_connected(_wait_for_answer(questions, pages, question), request.receive)
        return RedirectResponse(f"/answers/{stored.id}", status_code=303)

    @router.post("/ask")
    async def ask(request: Request, caller: CurrentCaller) -> Response:
        fields = FormFields.parse(await request.body())
        try:
            body = fields.to_body()
            inquiry = await _prepare(questions, body, caller)
        except InputError as error:
            problem = describe_error(error, resources.hide_paths)
            if is_part(request):
                return html_response(render("error", problem=problem), problem.status)
            form = build_form(resources, caller, fields, [problem.detail])
            return html_response(render("ask", form=form, overviews=(), page="ask"), problem.status)
        settings = {name: fields.values[name] for name in _FILTERS if fields.values.get(name)}
        return await respond(request, PageQuestion(inquiry, body, settings))

    @router.post("/answers/{answer_id}/follow-up")
    async def follow_up(answer_id: str, request: Request, caller: CurrentCaller) -> Response:
        previous = await pages.find(answer_id, caller)
        text = FormFields.parse(await request.body()).values.get("question", "")
        body = continue_answer(previous, text)
        inquiry = await questions.prepare(body, caller)
        return await respond(request, PageQuestion(inquiry, body, previous.settings, previous))


async def _prepare(questions: Questions, body: QuestionBody, caller: Caller) -> Inquiry:
    """Return the question, or raise InputError in the words of the form if its library needs a patient."""
    try:
        return await questions.prepare(body, caller)
    except InputError:
        if body.patient is None and questions.resources.find(body.library).holds_patients:
            raise InputError(NEEDS_PATIENT) from None
        raise


def continue_answer(previous: StoredAnswer, text: str) -> QuestionBody:
    """Return a question about the library and patient of an answer, with its settings. Raises InputError."""
    answer = previous.answer
    values = {
        **previous.settings,
        "question": text,
        "library": previous.library,
        "patient": answer.patient or answer.question.patient or "",
        "break_glass": previous.reason or "",
        "strategy": answer.strategy,
    }
    return FormFields(values).to_body()


def list_turns(previous: StoredAnswer) -> tuple[ConversationTurn, ...]:
    """Return the question and the answer before a follow-up. A withheld answer is not repeated."""
    answer = previous.answer
    turns = [ConversationTurn("user", answer.question.text)]
    lines = [line for line in (describe_choice(answer, answer.choice), answer.text) if line]
    if lines:
        turns.append(ConversationTurn("assistant", "\n".join(lines)))
    return keep_newest(turns)


async def _answer(
    questions: Questions, pages: AnswerPages, question: PageQuestion, live: LiveAnswer
) -> AsyncGenerator[str | StoredAnswer, None]:
    """Yield pieces of HTML on the way, and last the stored answer. Closing the generator cancels the calls."""
    inquiry, follow_up = question.inquiry, None
    if question.previous is not None:
        yield add_step(f"{COMPLETING}.")
        with questions.take_place(inquiry.caller):
            completed = await complete(
                inquiry.pipeline, list_turns(question.previous), inquiry.question.text, inquiry.question.patient
            )
        is_completed = completed.by == "chat-model"
        typed = inquiry.question.text
        follow_up = FollowUp(question.previous.id, typed, is_completed, completed.notice, completed.usage)
        # The completed question is checked as the typed one was: it could name another patient.
        again = question.body.model_copy(update={"question": completed.text})
        inquiry = await questions.prepare(again, inquiry.caller)
        yield replace_question(completed.text) if is_completed else add_step(completed.notice, is_trouble=True)
    steps = _answer_inquiry(questions, pages, replace(question, inquiry=inquiry), live, follow_up)
    if not live.shows_found:
        async with aclosing(steps):
            async for step in steps:
                yield step
        return
    found = render_found(pages.reader, inquiry, question.body.settings)
    async with aclosing(_show_beside(found, steps)) as pieces:
        async for piece in pieces:
            yield piece


async def _answer_inquiry(
    questions: Questions, pages: AnswerPages, question: PageQuestion, live: LiveAnswer, follow_up: FollowUp | None
) -> AsyncGenerator[str | StoredAnswer, None]:
    is_accepted = question.previous is not None
    async with aclosing(questions.events(question.inquiry, is_accepted=is_accepted)) as events:
        async for event in events:
            if isinstance(event, Answered):
                yield await store_answer(pages.answers, question.inquiry, event.answer, question.settings, follow_up)
                return
            if piece := live.render_event(event):
                yield piece


async def _show_beside(
    found: Coroutine[Any, Any, str], steps: AsyncGenerator[str | StoredAnswer, None]
) -> AsyncGenerator[str | StoredAnswer, None]:
    """Yield the steps, and the sentences found as soon as they are there. Nothing comes after the answer."""
    queue: asyncio.Queue[str | StoredAnswer | None] = asyncio.Queue()

    async def work() -> None:
        try:
            async with aclosing(steps):
                async for step in steps:
                    queue.put_nowait(step)
        finally:
            queue.put_nowait(None)

    async def search() -> None:
        if html := await found:
            queue.put_nowait(show_found(html))

    tasks = asyncio.create_task(work()), asyncio.create_task(search())
    try:
        while (step := await queue.get()) is not None:
            yield step
            if isinstance(step, StoredAnswer):
                break
        await tasks[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _wait_for_answer(questions: Questions, pages: AnswerPages, question: PageQuestion) -> StoredAnswer:
    """Return the stored answer to a question."""
    async with aclosing(_answer(questions, pages, question, question.start_live())) as steps:
        async for step in steps:
            if isinstance(step, StoredAnswer):
                return step
    raise RuntimeError("the last event of a question is its answer")


async def _stream_page(questions: Questions, pages: AnswerPages, question: PageQuestion) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a question's page as events. An error is the last piece. Closing cancels the question."""
    live = question.start_live(shows_found=True)
    earlier = "" if question.previous is None else render("earlier", view=build_answer_view(question.previous))
    yield frame(earlier + live.render_start())
    try:
        async with aclosing(_answer(questions, pages, question, live)) as steps:
            async for step in steps:
                if isinstance(step, StoredAnswer):
                    view = build_answer_view(step)
                    yield frame(earlier + render("answer", view=view, exports=list_exports()))
                    yield frame(replace_follow_up_form(view))
                else:
                    yield frame(step)
    except EpicrisisError as error:
        problem = describe_error(error, questions.resources.hide_paths)
        yield frame(earlier + render("error", problem=problem))
