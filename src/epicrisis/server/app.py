"""Build the application: routes, errors and guards around shared resources.

    app = create_app(await Resources.open(settings, [library]))

Each part of the server adds its router here. A router gets `Questions`, through which every question is asked.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from epicrisis.core.errors import SettingsError
from epicrisis.privacy.access_log import AccessLog
from epicrisis.server.api.error_handlers import add_error_handlers
from epicrisis.server.api.guards import MAX_BODY_BYTES, GuardOptions, RequestGuard
from epicrisis.server.api.job_api import make_job_routes
from epicrisis.server.api.library_api import make_document_routes, make_search_routes
from epicrisis.server.api.mcp_http import McpEndpoint
from epicrisis.server.api.openai_endpoint import make_openai_routes
from epicrisis.server.api.question_api import make_health_routes, make_question_routes
from epicrisis.server.api.upload_api import make_upload_routes
from epicrisis.server.base.error_log import log_fault
from epicrisis.server.base.http_errors import PROBLEM_RESPONSES, StateUnavailable
from epicrisis.server.base.metrics import MeasureRequests, make_metrics_routes
from epicrisis.server.base.private_folder import make_private_folder
from epicrisis.server.identity.identity_provider import IdentityProvider
from epicrisis.server.libraries.asked_questions import MAX_RUNNING, Questions
from epicrisis.server.libraries.reading import LibraryReader
from epicrisis.server.libraries.resources import Resources
from epicrisis.server.libraries.shelves import Shelves
from epicrisis.server.libraries.streaming import ClientGone
from epicrisis.server.page.rendering import Menu
from epicrisis.server.page.routes import make_absent_run_routes, make_page_routes
from epicrisis.server.page.sign_in import add_sign_in_state, make_sign_in_routes
from epicrisis.server.state.sessions import KEY_SESSION_MINUTES, Sessions
from epicrisis.server.state.state import REVIEW_PLAN, ServerState, open_state
from epicrisis.server.state.stored_answer_files import KEEP_DAYS
from epicrisis.server.state.stored_answers import AnswerStore
from epicrisis.server.work.jobs import Jobs
from epicrisis.server.work.upload_reception import UploadLimits
from epicrisis.server.work.uploads import Uploads

CLEAN_SECONDS = 3_600.0
STOP_SECONDS = 60.0
"""How long running questions may finish when the server stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How the server behaves. Requests choose none of it."""

    max_running: int = MAX_RUNNING
    """Questions that are answered at the same time."""
    stop_seconds: float = STOP_SECONDS
    folder: Path | None = None
    """Folder of the users, the access log and the jobs, from `state_folder`. None: the server has none of them."""
    runs: Path | None = None
    """Folder of finished runs. None: there are none to open."""
    uploads: UploadLimits | None = None
    """What may be uploaded into the libraries. None: nothing."""
    keep_days: float = KEEP_DAYS
    """Days for which answers of the page and of OpenAI clients are kept."""
    guard: GuardOptions = field(default_factory=GuardOptions)
    provider: IdentityProvider | None = None
    """Where users sign in, if not with keys alone."""


def create_app(resources: Resources, options: ServerOptions | None = None) -> FastAPI:
    """Return the application over these resources, which the caller closes.

    Raises SettingsError for a library of notes without a folder, as the access log would have no place.
    """
    options = options or ServerOptions()
    provider = options.provider
    if provider is not None:
        resources = replace(resources, sign_in_host=provider.settings.host)
    for place, name in ((options.folder, "the server's folder"), (options.runs, "the folder of runs")):
        if place is not None:
            resources.private_folders[str(place)] = name
    state = open_folder(resources, options)
    log, users = (None, None) if state is None else (state.log, state.users)
    questions = Questions(resources, options.max_running, log)
    reader = LibraryReader(resources, log)
    shelves = Shelves(reader)
    assistants = McpEndpoint(questions, reader)
    answers = AnswerStore(keep_days=options.keep_days) if state is None else state.open_answers(options.keep_days)
    jobs = None if state is None else Jobs(questions, state, provider)

    uploads = open_uploads(resources, options, log)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with assistants.run():
            if jobs is not None:
                await jobs.start()
            if uploads is not None:
                uploads.start()
            cleaning = asyncio.create_task(clean_regularly(answers))
            yield
            cleaning.cancel()
            await questions.stop(options.stop_seconds)
            await shelves.stop()
            if uploads is not None:
                await uploads.stop()
            if jobs is not None:
                await jobs.stop()

    app = FastAPI(
        title="epicrisis",
        version=version("epicrisis"),
        summary="Answers medical questions from long evidence, with checked quotations. Not a medical device.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={**PROBLEM_RESPONSES},
        # FastAPI's own spans and logs hold addresses with ids, and messages of exceptions.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.questions = questions
    app.state.reader = reader
    app.include_router(make_question_routes(questions))
    app.include_router(make_search_routes(reader))
    app.include_router(make_document_routes(reader))
    app.include_router(APIRouter() if jobs is None else make_job_routes(jobs))
    app.include_router(APIRouter() if uploads is None else make_upload_routes(uploads))
    app.include_router(make_health_routes(questions))
    app.include_router(make_metrics_routes(questions.metrics))
    app.router.routes.extend(assistants.routes)
    app.include_router(make_page_routes(questions, shelves, answers, uploads))
    app.state.menu = Menu()
    if options.runs is not None or (state is not None and state.open_review_items().ids(REVIEW_PLAN)):
        # Only these pages need the evaluation: no other server imports it.
        from epicrisis.server.runs.registration import add_run_routes

        add_run_routes(app, options.runs, state, None if provider is None else provider.sessions)
    else:
        app.include_router(make_absent_run_routes())
    sessions = None if state is None else Sessions(KEY_SESSION_MINUTES, database=state.database)
    app.include_router(make_sign_in_routes(users, provider, options.guard.address, sessions))
    app.include_router(make_openai_routes(questions, answers))
    add_error_handlers(app, resources.hide_paths)
    app.add_exception_handler(ClientGone, _send_nothing)
    guard_app(app, resources, options, state, sessions)
    app.add_middleware(MeasureRequests, metrics=questions.metrics)
    return app


def guard_app(
    app: FastAPI, resources: Resources, options: ServerOptions, state: ServerState | None, sessions: Sessions | None
) -> None:
    """Put the checks of every request around the application."""
    provider = options.provider
    users = None if state is None else state.users
    is_shared = users is not None and users.is_shared
    needs_key = options.guard.requires_key or log_is_needed(resources) or provider is not None or is_shared
    # A body has boundaries and headers besides its files.
    upload_bytes = 0 if options.uploads is None else options.uploads.upload_bytes + MAX_BODY_BYTES
    guard = replace(options.guard, requires_key=needs_key, upload_bytes=upload_bytes)
    if provider is not None:
        database = None if state is None else state.database
        key = secrets.token_hex(32) if database is None else database.read_key("sign-in")
        add_sign_in_state(app, guard.address, key)
    app.add_middleware(
        RequestGuard, options=guard, users=users, provider=provider, sessions=sessions, hide=resources.hide_paths
    )


def open_folder(resources: Resources, options: ServerOptions) -> ServerState | None:
    """Return the state of the server, or None without a folder.

    Raises SettingsError if keys are required and there is no user: for a library of patients' notes, for an address
    other than this machine, and for users in a database.
    """
    folder = options.folder
    notes = [library.name for library in resources.libraries.values() if library.holds_patients]
    state = None if folder is None else open_state(folder)
    has_users = options.provider is not None or (state is not None and state.users.has_users())
    is_shared = state is not None and state.users.is_shared
    if (notes or options.guard.requires_key or is_shared) and not has_users:
        reason = "the server can be reached from other machines"
        if notes or is_shared:
            reason = f"{notes[0]} holds patients' notes" if notes else "several servers may share these users"
        raise SettingsError(
            f"{reason}, so every request needs a key: add a user first, with `epicrisis users add NAME --role "
            f"{'patient-reader' if notes else 'literature-reader'}`, or name an identity provider "
            "(docs/deployment.md#users-and-keys)"
        )
    if folder is not None:
        make_private_folder(folder)
    return state


def open_uploads(resources: Resources, options: ServerOptions, log: AccessLog | None) -> Uploads | None:
    """Return the uploads, or None if the options allow none. Raises SettingsError without a folder for the files."""
    if options.uploads is None:
        return None
    if options.folder is None:
        raise SettingsError("uploads need a folder of the server: give it with --folder")
    return Uploads(resources, options.folder, options.uploads, log)


def log_is_needed(resources: Resources) -> bool:
    """Return whether a library holds patients' notes, so that reading it is logged and needs a key."""
    return any(library.holds_patients for library in resources.libraries.values())


async def clean_regularly(answers: AnswerStore) -> None:
    """Remove answers that are too old, and files of a killed process: at once, and every hour until cancelled."""
    while True:
        try:
            await asyncio.to_thread(answers.remove_expired)
        except (OSError, StateUnavailable) as error:
            log_fault(error)
        await asyncio.sleep(CLEAN_SECONDS)


async def _send_nothing(_: Request, __: Exception) -> Response:
    """Return the response to a client that is gone."""
    return Response(status_code=499)
