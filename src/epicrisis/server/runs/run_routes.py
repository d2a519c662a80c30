"""Finished runs for programs and as pages: those of the folder named when the server started, and of no other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as PathParameter
from starlette.responses import HTMLResponse, Response

from epicrisis.core.errors import InputError
from epicrisis.evaluation.experiments.run_findings import read_findings
from epicrisis.evaluation.runs.run_folder import MANIFEST, RECORDS, RunManifest, read_manifest
from epicrisis.privacy.access_log import AccessLog, AccessOutcome, build_entry
from epicrisis.report.page import render_page
from epicrisis.server.api.question_api import PREFIX, DataResponse
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.users import Caller, CurrentCaller
from epicrisis.server.page.rendering import HEADERS, html_response, render
from epicrisis.system.json_lines import read_lines

REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A report is one file with its styles in it. It runs no script and loads nothing."""
NO_FOLDER = "the server has no folder of runs: start it with --runs FOLDER"
_NO_RUN = "there is no run of this name that you may read: GET /api/v1/runs lists them"
RunName = Annotated[str, PathParameter(min_length=1, max_length=255, description="Name of a run.")]


class RunFolder:
    """The finished runs below one folder. Without a folder there are none."""

    def __init__(self, folder: Path | None, log: AccessLog | None = None) -> None:
        self.path = folder
        self._log = log
        self._patients: dict[Path, tuple[int, bool]] = {}

    def has_runs(self) -> bool:
        """Return whether there is a run, whoever may read it."""
        return bool(self._folders())

    def list_runs(self, caller: Caller) -> dict[str, RunManifest]:
        """Return the manifests of the runs that the caller may read, by name. Folders that are no runs are left out."""
        manifests: dict[str, RunManifest] = {}
        for name, folder in self._folders().items():
            try:
                if reads_every_patient(caller) or not self._is_about_patients(folder):
                    manifests[name] = read_manifest(folder)
            except InputError:
                continue
        return manifests

    def find(self, name: str, caller: Caller) -> Path:
        """Return the folder of a run, once the access log has it if the run is about patients.

        Raises NotFound, also for a run that the caller may not read, and StorageError.
        """
        folder = self._folders().get(name)
        if folder is None:
            raise NotFound(_NO_RUN if self.path is not None else NO_FOLDER)
        if not self._is_about_patients(folder):
            return folder
        is_allowed = reads_every_patient(caller)
        if self._log is not None:
            outcome: AccessOutcome = "allowed" if is_allowed else "refused"
            # A run does not say whose record a line is about.
            entry = build_entry(caller.log_name, "run", name, None, (), user_id=caller.owner, outcome=outcome)
            self._log.append(entry)
        if not is_allowed:
            raise NotFound(_NO_RUN)
        return folder

    def render_report(self, name: str, caller: Caller) -> str:
        """Return the page of a run. Raises NotFound, and InputError for a run without findings."""
        return render_page(read_findings([self.find(name, caller)]), f"Report of {name}", plots=False)

    def _folders(self) -> dict[str, Path]:
        """Return the folders with a manifest by name. A request's name is looked up here, and opens nothing."""
        folders: dict[str, Path] = {}
        for path in [] if self.path is None else sorted(self.path.glob(f"*/{MANIFEST}")):
            if not path.parent.is_symlink():
                folders[path.parent.name] = path.parent
        return folders

    def _is_about_patients(self, folder: Path) -> bool:
        """Return whether a question of the run is about a patient. Unreadable records count as such."""
        records = folder / RECORDS
        if not records.is_file():
            return False
        size = records.stat().st_size
        cached = self._patients.get(folder)
        if cached is None or cached[0] != size:
            cached = self._patients[folder] = size, _holds_patients(records)
        return cached[1]


def make_run_routes(runs: RunFolder) -> APIRouter:
    """Return the routes of runs for programs."""
    router = APIRouter(prefix=f"{PREFIX}/runs", tags=["Runs"])

    @router.get("", summary="List finished runs")
    async def list_runs(caller: CurrentCaller) -> DataResponse:
        """Return the plan, states and usage of each run that the caller may read, by name."""
        return DataResponse(await asyncio.to_thread(runs.list_runs, caller))

    @router.get("/{name}", summary="Show a run")
    async def show_run(name: RunName, caller: CurrentCaller) -> DataResponse:
        """Return plan, states and usage of a run."""
        folder = await asyncio.to_thread(runs.find, name, caller)
        return DataResponse(await asyncio.to_thread(read_manifest, folder))

    @router.get("/{name}/report", summary="Open the report of a run", response_class=HTMLResponse)
    async def show_report(name: RunName, caller: CurrentCaller) -> HTMLResponse:
        """Return the report of a run as a page without scripts."""
        page = await asyncio.to_thread(runs.render_report, name, caller)
        return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY, "Cache-Control": "no-store"})

    return router


def add_run_pages(router: APIRouter, runs: RunFolder) -> None:
    """Add the list of runs and the report of each. Without a folder the list says how to name one."""

    @router.get("/runs")
    async def run_list(caller: CurrentCaller) -> Response:
        manifests = await asyncio.to_thread(runs.list_runs, caller)
        facts = {name: list_facts(manifest) for name, manifest in manifests.items()}
        return html_response(render("runs", runs=facts, has_folder=runs.path is not None, page="runs"))

    @router.get("/runs/{name}/report")
    async def report(name: str, caller: CurrentCaller) -> Response:
        page = await asyncio.to_thread(runs.render_report, name, caller)
        return HTMLResponse(page, headers={**HEADERS, "Content-Security-Policy": REPORT_POLICY})


def list_facts(manifest: RunManifest) -> list[tuple[str, str]]:
    """Return what the list says of a run, as name and value."""
    recipe: Mapping[str, Any] = manifest.plan.recipe
    models = {str(model.get("name")) for model in recipe.get("models", {}).values()}
    states = [f"{count:,} {state}" for state, count in manifest.states.items()]
    facts = (
        ("Questions", f"{manifest.cases:,} of {manifest.plan.dataset.get('name', 'an unnamed set')}"),
        ("Strategy", str(recipe.get("settings", {}).get("strategy", ""))),
        ("Models", ", ".join(sorted(models))),
        ("Outcome", ", ".join(states)),
        ("State", "" if manifest.complete else "not complete: some questions have no answer"),
    )
    return [(name, value) for name, value in facts if value]


def reads_every_patient(caller: Caller) -> bool:
    """Return whether the caller may read any patient's record. A run does not say whose record a line is about."""
    return caller.has("patient-reader") and caller.patients is None


def _holds_patients(records: Path) -> bool:
    try:
        for line in read_lines(records):
            answer = line.value.get("answer")
            question = answer.get("question") if isinstance(answer, dict) else None
            if not isinstance(question, dict) or question.get("patient") is not None:
                return True
    except InputError:
        return True
    return False
