"""The routes of jobs: `epicrisis ask --file` over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response, StreamingResponse

from epicrisis.server.api.question_api import PREFIX, DataResponse
from epicrisis.server.base.users import CurrentCaller
from epicrisis.server.state.job_models import JobBody
from epicrisis.server.work.jobs import Jobs

JobId = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="Id of a job.")]
JSON_LINES = "application/x-ndjson"


def make_job_routes(jobs: Jobs) -> APIRouter:
    """Return the routes of jobs. Everybody sees their own jobs only."""
    router = APIRouter(prefix=f"{PREFIX}/jobs", tags=["Jobs"])

    @router.post("", status_code=202, summary="Answer many questions in the background")
    async def submit(body: JobBody, caller: CurrentCaller) -> DataResponse:
        """Start a job. Its answers survive a kill of the server, which continues the job when it starts again."""
        return DataResponse(await jobs.submit(body, caller), status_code=202)

    @router.get("", summary="List your jobs")
    async def list_jobs(caller: CurrentCaller) -> DataResponse:
        """Return the progress of the caller's jobs, the newest first."""
        return DataResponse(await jobs.list_jobs(caller))

    @router.get("/{id}", summary="Show the progress of a job")
    async def status(id: JobId, caller: CurrentCaller) -> DataResponse:
        """Return the state of a job, and the number of its answers by state."""
        return DataResponse(await jobs.status(id, caller))

    @router.get("/{id}/answers", summary="Download the answers of a job", response_class=StreamingResponse)
    async def answers(id: JobId, caller: CurrentCaller) -> Response:
        """Return the answers so far as JSON lines, in the format of `epicrisis ask --file`."""
        lines = await jobs.read_answers(id, caller)
        headers = {"Cache-Control": "no-store", "Content-Disposition": 'attachment; filename="answers.jsonl"'}
        return StreamingResponse(lines, media_type=JSON_LINES, headers=headers)

    @router.post("/{id}/cancel", summary="Cancel a job")
    async def cancel(id: JobId, caller: CurrentCaller) -> DataResponse:
        """Stop a job at once. Its answers are kept."""
        return DataResponse(await jobs.cancel(id, caller))

    @router.post("/{id}/resume", summary="Resume a job")
    async def resume(id: JobId, caller: CurrentCaller) -> DataResponse:
        """Ask the questions without an answer, and those that failed."""
        return DataResponse(await jobs.resume(id, caller))

    @router.delete("/{id}", status_code=204, summary="Delete a job")
    async def remove(id: JobId, caller: CurrentCaller) -> Response:
        """Stop a job, and delete its questions and answers."""
        await jobs.remove(id, caller)
        return Response(status_code=204)

    return router
