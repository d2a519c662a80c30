"""The pages of blind reviews. A review is addressed by its random id, a question by its number in the reviewer's order.

Nothing that a reviewer is sent depends on the run of an answer: no name, id or address tells the answers apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from epicrisis.core.errors import InputError
from epicrisis.core.printable import printable
from epicrisis.evaluation.grading.human_verdicts import CRITERIA
from epicrisis.evaluation.grading.review_file import dump_review, dump_verdict_table
from epicrisis.privacy.access_log import AccessLog, AccessOutcome
from epicrisis.server.base.http_errors import AccessDenied, NotFound, describe_error
from epicrisis.server.base.users import LOCAL, Caller, CurrentCaller, UserStore
from epicrisis.server.page.rendering import HEADERS, html_response, render
from epicrisis.server.runs.review_answers import MAX_QUESTIONS, ReviewRequest, make_review
from epicrisis.server.runs.review_forms import MAX_REMARK_CHARACTERS, StartForm, VerdictForm
from epicrisis.server.runs.review_view import (
    PLACE_WORDS,
    ReviewRow,
    list_turns,
    render_results,
    view_review,
    view_turn,
)
from epicrisis.server.runs.reviews import BlindReview, ReviewState, ReviewStore, ReviewTurn, ReviewVerdict
from epicrisis.server.runs.run_routes import NO_FOLDER, RunFolder, reads_every_patient
from epicrisis.server.state.sessions import Sessions

_NO_CHOICE = "choose which answer is better, or that they are the same"


@dataclass(frozen=True, slots=True)
class ReviewPages:
    """What the pages of reviews read and write."""

    store: ReviewStore
    runs: RunFolder
    users: UserStore
    log: AccessLog
    sessions: Sessions | None = None
    """The users of the identity provider, if the server has one."""

    def list_reviewers(self) -> dict[str, Caller]:
        """Return the users whom a review may name: those of the file by name, others by owner id, which has a colon.

        Of the users of an identity provider those are known who signed in within a day.
        """
        reviewers: dict[str, Caller] = {}
        for name, user in self.users.users().items():
            reviewers[name] = user.as_caller(name)
        for caller in () if self.sessions is None else self.sessions.list_owners():
            reviewers[caller.owner] = caller
        return reviewers

    async def open(self, review_id: str, caller: Caller) -> tuple[BlindReview, ReviewState]:
        """Return a review that the caller may judge or administer, with its verdicts. Raises NotFound otherwise."""
        review = await asyncio.to_thread(self.store.find, review_id)
        if not may_read(review, caller):
            await self.record(caller, "review", review, None, (), outcome="refused")
        if not (is_reviewer(review, caller) or administers(review, caller)):
            raise NotFound("the server has no such review that you may read")
        return review, await asyncio.to_thread(self.store.read_state, review_id)

    async def open_turn(
        self, review_id: str, number: int, caller: Caller
    ) -> tuple[BlindReview, ReviewState, ReviewTurn]:
        """Return a question of the caller, once the access log has it. Raises NotFound and InputError."""
        review, state = await self.open(review_id, caller)
        if not is_reviewer(review, caller):
            raise AccessDenied(f"{caller.name} is not a reviewer of this review")
        if state.is_closed:
            raise InputError("the review is closed and takes no more verdicts")
        turns = review.turns(caller.owner)
        if not 1 <= number <= len(turns):
            raise NotFound("the review has no question of this number")
        turn = turns[number - 1]
        await self.record(caller, "review", review, turn.item.patient, turn.item.documents)
        return review, state, turn

    async def administer(self, review_id: str, caller: Caller) -> tuple[BlindReview, ReviewState]:
        """Return a review for its administrator. Raises AccessDenied for others."""
        review, state = await self.open(review_id, caller)
        if not administers(review, caller):
            raise AccessDenied("this needs the role administrator")
        return review, state

    async def open_results(self, review_id: str, caller: Caller) -> tuple[BlindReview, ReviewState]:
        """Return a closed review for its administrator, once the access log has it. Raises AccessDenied for others."""
        review, state = await self.administer(review_id, caller)
        if not state.is_closed:
            raise InputError("the review is still open: close it first, so that no reviewer sees results before")
        await self.record(caller, "review-results", review, None, ())
        return review, state

    async def record(
        self,
        caller: Caller,
        action: str,
        review: BlindReview,
        patient: str | None,
        documents: Sequence[str],
        *,
        outcome: AccessOutcome = "allowed",
    ) -> None:
        """Write to the access log what was read of a review about patients."""
        if review.plan.holds_patients:
            name, runs = caller.log_name, ", ".join(review.plan.runs)
            await self.log.record(name, action, runs, patient, documents, user_id=caller.owner, outcome=outcome)


def is_administrator(caller: Caller) -> bool:
    """Return whether the caller may start reviews and read results: also everybody on a server without users."""
    return caller is LOCAL or caller.has("administrator")


def may_read(review: BlindReview, caller: Caller) -> bool:
    """Return whether the caller may read the answers of a review."""
    return not review.plan.holds_patients or reads_every_patient(caller)


def is_reviewer(review: BlindReview, caller: Caller) -> bool:
    """Return whether the caller may judge."""
    reviewers = review.plan.reviewers
    return may_read(review, caller) and (not reviewers or caller.owner in reviewers)


def administers(review: BlindReview, caller: Caller) -> bool:
    """Return whether the caller may close the review and read its results."""
    return may_read(review, caller) and is_administrator(caller)


def add_review_pages(router: APIRouter, pages: ReviewPages) -> None:
    """Add the pages of reviews: the list, starting, judging, and the results."""
    _add_starting(router, pages)
    _add_judging(router, pages)
    _add_results(router, pages)


def _add_starting(router: APIRouter, pages: ReviewPages) -> None:
    @router.get("/reviews")
    async def reviews(caller: CurrentCaller) -> Response:
        rows = await asyncio.to_thread(_list_reviews, pages, caller)
        page = render("reviews", reviews=rows, may_start=is_administrator(caller), page="reviews")
        return html_response(page)

    @router.get("/reviews/new")
    async def start_page(caller: CurrentCaller) -> Response:
        return html_response(await _render_start(pages, caller, StartForm()))

    @router.post("/reviews")
    async def start(request: Request, caller: CurrentCaller) -> Response:
        _require_administrator(caller)
        form = StartForm()
        try:
            form = StartForm.parse(await request.body())
            review = await asyncio.to_thread(_start_review, pages, form, caller)
        except (InputError, NotFound) as error:
            problem = describe_error(error)
            page = await _render_start(pages, caller, form, [problem.detail])
            return html_response(page, problem.status)
        await asyncio.to_thread(pages.store.add, review)
        return RedirectResponse(f"/reviews/{review.plan.id}", status_code=303)


def _add_judging(router: APIRouter, pages: ReviewPages) -> None:
    @router.get("/reviews/{review_id}")
    async def overview(review_id: str, caller: CurrentCaller) -> Response:
        review, state = await pages.open(review_id, caller)
        row = _view_row(review, state, caller)
        turns = list_turns(review, state, caller.owner) if row.own is not None else ()
        following = state.next_turn(caller.owner, review.turns(caller.owner)) if row.own is not None else None
        values = {"turns": turns, "next": following, "administers": administers(review, caller)}
        return html_response(render("review", review=row, **values, page="reviews"))

    @router.get("/reviews/{review_id}/questions/{number}")
    async def question(review_id: str, number: int, caller: CurrentCaller, saved: int = 0) -> Response:
        review, state, turn = await pages.open_turn(review_id, number, caller)
        return html_response(_render_turn(review, state, caller, turn, saved))

    @router.post("/reviews/{review_id}/questions/{number}")
    async def judge(review_id: str, number: int, request: Request, caller: CurrentCaller) -> Response:
        review, state, turn = await pages.open_turn(review_id, number, caller)
        try:
            form = VerdictForm.parse(await request.body(), review.plan.criteria)
        except InputError as error:
            problem = describe_error(error)
            return html_response(_render_turn(review, state, caller, turn, fault=problem.detail), problem.status)
        await _save(pages, review, caller, turn, form)
        state = await asyncio.to_thread(pages.store.read_state, review_id)
        if form.place is None and not form.is_skipped:
            # Criteria and remark are kept all the same.
            return html_response(_render_turn(review, state, caller, turn, fault=_NO_CHOICE))
        following = state.next_turn(caller.owner, review.turns(caller.owner), number)
        address = f"/reviews/{review_id}"
        if following is not None and following.number != number:
            address += f"/questions/{following.number}?saved={number}"
        return RedirectResponse(address, status_code=303)

    @router.post("/reviews/{review_id}/questions/{number}/draft")
    async def draft(review_id: str, number: int, request: Request, caller: CurrentCaller) -> Response:
        review, _, turn = await pages.open_turn(review_id, number, caller)
        form = VerdictForm.parse(await request.body(), review.plan.criteria)
        await _save(pages, review, caller, turn, VerdictForm(None, False, form.criteria, form.remark))
        return html_response("Saved.")


def _add_results(router: APIRouter, pages: ReviewPages) -> None:
    @router.post("/reviews/{review_id}/close")
    async def close(review_id: str, caller: CurrentCaller) -> Response:
        await pages.administer(review_id, caller)
        await asyncio.to_thread(pages.store.close, review_id, caller.owner)
        return RedirectResponse(f"/reviews/{review_id}/results", status_code=303)

    @router.post("/reviews/{review_id}/delete")
    async def delete(review_id: str, caller: CurrentCaller) -> Response:
        await pages.administer(review_id, caller)
        await asyncio.to_thread(pages.store.remove, review_id)
        return RedirectResponse("/reviews", status_code=303)

    @router.get("/reviews/{review_id}/results")
    async def results(review_id: str, caller: CurrentCaller) -> Response:
        review, state = await pages.open_results(review_id, caller)
        return html_response(await asyncio.to_thread(render_results, review, state))

    @router.get("/reviews/{review_id}/review.json")
    async def export_json(review_id: str, caller: CurrentCaller) -> Response:
        review, state = await pages.open_results(review_id, caller)
        return _download(dump_review(review.pairs, state.list_judged()), "application/json", "review.json")

    @router.get("/reviews/{review_id}/review.csv")
    async def export_csv(review_id: str, caller: CurrentCaller) -> Response:
        review, state = await pages.open_results(review_id, caller)
        return _download(dump_verdict_table(review.pairs, state.list_judged()), "text/csv", "review.csv")


def _list_reviews(pages: ReviewPages, caller: Caller) -> list[ReviewRow]:
    rows: list[ReviewRow] = []
    for review in pages.store.list():
        if is_reviewer(review, caller) or administers(review, caller):
            rows.append(_view_row(review, pages.store.read_state(review.plan.id), caller))
    return rows


def _view_row(review: BlindReview, state: ReviewState, caller: Caller) -> ReviewRow:
    reviewer = caller.owner if is_reviewer(review, caller) else None
    return view_review(review, state, reviewer, is_administrator=administers(review, caller))


def _require_administrator(caller: Caller) -> None:
    if not is_administrator(caller):
        caller.require("administrator")


async def _render_start(pages: ReviewPages, caller: Caller, form: StartForm, faults: Sequence[str] = ()) -> str:
    """Return the form that starts a review. Raises AccessDenied, and NotFound without a folder of runs."""
    _require_administrator(caller)
    if pages.runs.path is None:
        raise NotFound(NO_FOLDER)
    manifests = await asyncio.to_thread(pages.runs.list_runs, caller)
    reviewers = await asyncio.to_thread(pages.list_reviewers)
    runs: list[tuple[str, str]] = []
    for name, manifest in manifests.items():
        state = "" if manifest.complete else ", not complete"
        runs.append((name, printable(f"{name} ({manifest.cases:,} questions{state})")))
    return render(
        "review_start",
        form=form,
        runs=runs,
        reviewers={value: printable(caller.name) for value, caller in reviewers.items()},
        has_provider=pages.sessions is not None,
        criteria=CRITERIA,
        most=MAX_QUESTIONS,
        faults=[printable(fault) for fault in faults],
        page="reviews",
    )


def _start_review(pages: ReviewPages, form: StartForm, caller: Caller) -> BlindReview:
    """Return the review of a form. Raises InputError for a wrong field, and NotFound for an unknown run."""
    if form.ours == form.rival:
        raise InputError("choose two different runs")
    # The names of a request are looked up among the folders of runs, and open nothing else.
    folders = {name: pages.runs.find(name, caller) for name in (form.ours, form.rival)}
    users = pages.list_reviewers()
    if not users.keys() >= set(form.reviewers):
        raise InputError("Reviewers: one of them is no user of this server, or has not signed in for a day")
    reviewers = [users[value] for value in form.reviewers]
    request = ReviewRequest(
        creator=caller.name,
        criteria=tuple(form.criteria),
        reviewers={reviewer.owner: reviewer.name for reviewer in reviewers},
        sample=form.sample_size,
        seed=form.seed_number,
    )
    review = make_review(request, folders)
    for reviewer in reviewers:
        if not may_read(review, reviewer):
            raise InputError(
                f"Reviewers: {reviewer.name} may not read every patient's record, and these runs are about patients"
            )
    return review


def _render_turn(
    review: BlindReview, state: ReviewState, caller: Caller, turn: ReviewTurn, saved: int = 0, fault: str = ""
) -> str:
    return render(
        "review_question",
        view=view_turn(review, state, caller.owner, turn),
        saved=saved if 1 <= saved <= len(review.items) else 0,
        fault=fault,
        places=PLACE_WORDS,
        most=MAX_REMARK_CHARACTERS,
        page="reviews",
    )


async def _save(pages: ReviewPages, review: BlindReview, caller: Caller, turn: ReviewTurn, form: VerdictForm) -> None:
    """Keep what the form says, by the answers of the pair instead of the places on the page."""
    verdict = ReviewVerdict(
        reviewer=caller.owner,
        name=caller.name,
        pair=turn.item.pair,
        state="skipped" if form.is_skipped else "draft" if form.place is None else "judged",
        order=turn.order,
        choice=None if form.place is None else turn.translate(form.place),
        criteria={name: turn.translate(place) for name, place in form.criteria.items()},
        remark=form.remark,
    )
    await asyncio.to_thread(pages.store.save, review.plan.id, verdict)


def _download(text: str, media_type: str, name: str) -> Response:
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode(), media_type=f"{media_type}; charset=utf-8", headers=headers)
