"""The page of finished runs, and their reports: those of the folder named at the start of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from epicrisis.core.printable import printable
from epicrisis.evaluation.runs.run_folder import RunManifest
from epicrisis.server.errors import NotFound
from epicrisis.server.page.rendering import HEADERS, html_response, render
from epicrisis.server.run_api import REPORT_POLICY, RunFolder
from epicrisis.server.users import CurrentCaller


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in the list. All texts are printable."""

    name: str
    """As the folder is called, for the address."""
    label: str
    facts: tuple[tuple[str, str], ...]


def add_run_pages(router: APIRouter, runs: RunFolder | None) -> None:
    """Add the list of runs and the report of each. Without a folder the list says how to name one."""

    @router.get("/runs")
    async def run_list(caller: CurrentCaller) -> Response:
        manifests: Mapping[str, RunManifest] = {}
        if runs is not None:
            manifests = await asyncio.to_thread(runs.list_runs, caller)
        rows = [view_run(name, manifest) for name, manifest in manifests.items()]
        return html_response(render("runs", runs=rows, has_folder=runs is not None, page="runs"))

    @router.get("/runs/{name}/report")
    async def report(name: str, caller: CurrentCaller) -> Response:
        if runs is None:
            raise NotFound("the server has no folder of runs: start it with --runs FOLDER")
        page = await asyncio.to_thread(runs.render_report, name, caller)
        return HTMLResponse(page, headers={**HEADERS, "Content-Security-Policy": REPORT_POLICY})


def view_run(name: str, manifest: RunManifest) -> RunRow:
    """Return a run as a row of the list."""
    recipe: Mapping[str, Any] = manifest.plan.recipe
    settings = recipe.get("settings", {})
    models: set[str] = set()
    for model in recipe.get("models", {}).values():
        models.add(str(model.get("name")))
    states = [f"{count:,} {state}" for state, count in manifest.states.items()]
    facts = (
        ("Questions", f"{manifest.cases:,} of {manifest.plan.dataset.get('name', 'an unnamed set')}"),
        ("Strategy", str(settings.get("strategy", ""))),
        ("Models", ", ".join(sorted(models))),
        ("Outcome", ", ".join(states)),
        ("State", "" if manifest.complete else "not complete: some questions have no answer"),
    )
    return RunRow(name, printable(name), tuple((label, printable(value)) for label, value in facts if value))
