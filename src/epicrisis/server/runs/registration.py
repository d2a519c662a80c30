"""Add the routes of finished runs, their comparisons and their blind reviews to a server."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from starlette.responses import Response

from epicrisis.server.page.page_route import PageRoute
from epicrisis.server.page.rendering import Menu, MenuItem
from epicrisis.server.runs.compared_runs import add_comparison_pages
from epicrisis.server.runs.review_routes import ReviewPages, add_review_pages
from epicrisis.server.runs.reviews import ReviewStore
from epicrisis.server.runs.run_routes import RunFolder, add_run_pages, make_run_routes
from epicrisis.server.state.sessions import Sessions
from epicrisis.server.state.state import ServerState


def add_run_routes(app: FastAPI, folder: Path | None, state: ServerState | None, sessions: Sessions | None) -> None:
    """Add the routes, and what the menu says of them. Without a folder of runs, reviews can be judged, and none begun.

    `sessions`: the users of the identity provider, if the server has one.
    """
    runs = RunFolder(folder, None if state is None else state.log)
    app.include_router(make_run_routes(runs))
    pages = APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=Response)
    add_run_pages(pages, runs)
    add_comparison_pages(pages, runs)
    reviews = None
    if state is not None:
        reviews = ReviewStore(state.open_review_items())
        add_review_pages(pages, ReviewPages(reviews, runs, state.users, state.log, sessions))
    app.include_router(pages)

    def list_items() -> list[MenuItem]:
        has_runs = runs.has_runs()
        items = [("/runs", "Runs", "runs")] if has_runs else []
        if reviews is not None and (has_runs or reviews.has_reviews()):
            items.append(("/reviews", "Reviews", "reviews"))
        return items

    app.state.menu = Menu(list_items)
