"""The MCP server: tools, resources, errors and patients, with the official client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import validate  # type: ignore[import-untyped]
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from epicrisis.core.errors import EndpointUnreachable, InputError
from epicrisis.privacy.access_log import AccessLog
from epicrisis.server.api.mcp_results import passage_uri
from epicrisis.server.api.mcp_server import create_mcp_server, find_patients
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.libraries.asked_questions import Questions
from epicrisis.server.libraries.reading import LibraryReader
from epicrisis.server.libraries.resources import OpenLibrary
from tests.server.test_ask import WaitingModel, failing
from tests.support.patient_records import LITERATURE, PATIENTS, notes, papers, recorder, word
from tests.support.servers import QUESTION, open_library, open_resources, running

TRANSPORTS = ("direct", "http")


def make_server(library: OpenLibrary, patients: frozenset[str] = frozenset(), log: AccessLog | None = None) -> Any:
    resources = open_resources(library)
    return create_mcp_server(Questions(resources, log=log), LibraryReader(resources, log), library, patients)


@asynccontextmanager
async def assistant(library: OpenLibrary, transport: str = "direct", patients: frozenset[str] = frozenset()) -> Any:
    """Give a client of the server of this library, in this process or over a socket."""
    if transport == "direct":
        async with Client(make_server(library, patients)) as client:
            yield client
        return
    async with running(create_app(open_resources(library))) as url, Client(f"{url}/mcp") as client:
        yield client


async def call(
    library: OpenLibrary, tool: str, patients: frozenset[str] = frozenset(), **arguments: Any
) -> CallToolResult:
    async with assistant(library, patients=patients) as client:
        result: CallToolResult = await client.call_tool(tool, arguments)
        return result


def text_of(result: CallToolResult) -> str:
    return "\n".join(getattr(part, "text", "") for part in result.content)


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ask_returns_structured_answer_with_readable_citations(tmp_path: Path, transport: str) -> None:
    steps: list[tuple[float, str | None]] = []

    async def note(progress: float, _: float | None, message: str | None) -> None:
        steps.append((progress, message))

    async def run() -> None:
        async with assistant(open_library(tmp_path / "lib"), transport) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            result = await client.call_tool("ask", {"question": QUESTION}, progress_callback=note)
            assert not result.is_error
            answer = result.structured_content
            validate(answer, tools["ask"].output_schema)
            assert (answer["state"], answer["strategy"], answer["model_calls"]) == ("answered", "rag", 1)
            assert answer["claims"][0]["citations"] == [1]
            assert text_of(result).startswith("Answer: ")
            (citation,) = answer["citations"]
            assert citation["verified"]
            assert citation["uri"] in text_of(result)
            resource = await client.read_resource(citation["uri"])
            assert citation["quotation"] in resource.contents[0].text

    asyncio.run(run())
    assert [message for _, message in steps] == ["Found 4 passages", "Writing the answer"]
    assert [progress for progress, _ in steps] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_tools_are_listed_as_reading_only_with_output_schemas(tmp_path: Path, transport: str) -> None:
    async def run() -> None:
        async with assistant(open_library(tmp_path / "lib"), transport) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["ask", "evidence", "search"]
            assert all(tool.output_schema and tool.annotations.read_only_hint for tool in tools)
            templates = (await client.list_resource_templates()).resource_templates
            names = [template.uri_template for template in templates]
            assert names == ["epicrisis://passages/{passage_id}", "epicrisis://documents/{document_id}"]

    asyncio.run(run())


def test_search_returns_ranking_and_fenced_texts(tmp_path: Path) -> None:
    async def run() -> None:
        async with assistant(open_library(tmp_path / "lib")) as client:
            (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "search"]
            result = await client.call_tool("search", {"query": "aspirin stroke", "k": 2})
            validate(result.structured_content, tool.output_schema)
            hits = result.structured_content["hits"]
            assert [hit["rank"] for hit in hits] == [1, 2]
            assert all(hit["document_id"].startswith("paper:") for hit in hits)
            fence = text_of(result).partition("<documents>")[2]
            assert all(hit["text"] in fence for hit in hits)

    asyncio.run(run())


def test_search_with_date_returns_no_later_document(tmp_path: Path) -> None:
    library = open_library(tmp_path / "lib")
    result = asyncio.run(call(library, "search", query="aspirin", as_of="2014"))
    assert result.structured_content["hits"] == []


def test_evidence_returns_sentences_without_calling_a_model(tmp_path: Path) -> None:
    model = recorder()
    result = asyncio.run(call(open_library(tmp_path / "lib", model), "evidence", question=QUESTION, sentences=2))
    assert len(result.structured_content["citations"]) == 2
    assert result.structured_content["model_calls"] == 0
    assert model.requests == []


def test_document_resource_returns_whole_text_fenced(tmp_path: Path) -> None:
    async def run() -> str:
        async with assistant(open_library(tmp_path / "lib")) as client:
            resource = await client.read_resource(passage_uri("paper:1").replace("passages/", "documents/"))
            return str(resource.contents[0].text)

    text = asyncio.run(run())
    assert text.startswith("Trial 1")
    assert "Aspirin was the drug given for stroke in trial 1" in text.partition("<documents>")[2]


@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("search", {"query": " "}, "the query is empty: give the words to look for"),
        ("search", {"query": "x", "since": "20x"}, "since: not a date"),
        ("search", {"query": "x", "k": 0}, "greater than or equal to 1"),
        ("ask", {"question": QUESTION, "patient": "P-100"}, "leave out the patient"),
        ("ask", {"question": QUESTION, "strategy": "medprompt"}, "the strategy medprompt is not available here"),
        ("evidence", {"question": "\n"}, "the question is empty: give a text"),
    ],
)
def test_wrong_argument_is_tool_error_with_cure(
    tmp_path: Path, tool: str, arguments: dict[str, Any], complaint: str
) -> None:
    result = asyncio.run(call(open_library(tmp_path / "lib"), tool, **arguments))
    assert result.is_error
    assert complaint in text_of(result)


@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("search", {"query": "stroke", "asOf": "2016"}, "no argument 'asOf': did you mean as_of?"),
        ("search", {"query": "stroke", "top_k": 1}, "no argument 'top_k'"),
        ("search", {"query": "stroke", "until": None}, "no argument 'until'"),
        ("search", {"query": "stroke", "AS_OF": ""}, "did you mean as_of?"),
        (
            "evidence",
            {"question": QUESTION, "count": 1},
            "The arguments are question, sentences, patient, since, as_of",
        ),
        ("ask", {"question": QUESTION, "patient_id": "p1"}, "did you mean patient?"),
        ("ask", {"question": QUESTION, "context": "x"}, "no argument 'context'"),
        ("ask", {"question": ""}, "question"),
    ],
)
def test_unknown_argument_is_refused_by_name(
    tmp_path: Path, tool: str, arguments: dict[str, Any], complaint: str
) -> None:
    result = asyncio.run(call(open_library(tmp_path / "lib"), tool, **arguments))
    assert result.is_error
    assert complaint in text_of(result)


@pytest.mark.parametrize("nothing", [None, "", " "])
def test_optional_arguments_may_be_null_or_empty(tmp_path: Path, nothing: str | None) -> None:
    async def run() -> None:
        async with assistant(open_library(tmp_path / "lib")) as client:
            tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            for name, schema in tools.items():
                assert schema["additionalProperties"] is False
                optional = dict.fromkeys(set(schema["properties"]) - set(schema["required"]), nothing)
                word = "query" if name == "search" else "question"
                result = await client.call_tool(name, {word: QUESTION, **optional})
                assert not result.is_error, text_of(result)

    asyncio.run(run())


def test_failed_model_is_tool_error_without_server_paths(tmp_path: Path) -> None:
    error = EndpointUnreachable("nothing answers at http://127.0.0.1:9: start the server of the model")
    result = asyncio.run(call(open_library(tmp_path / "lib", failing(error)), "ask", question=QUESTION))
    assert result.is_error
    assert "No answer (failed)" in text_of(result)
    assert "start the server of the model" in text_of(result)
    assert str(tmp_path) not in text_of(result)


@pytest.mark.parametrize(
    "uri",
    [
        passage_uri("paper:9#0"),
        passage_uri("paper:9").replace("passages/", "documents/"),
        passage_uri("../../etc/passwd"),
    ],
)
def test_unknown_resource_is_refused(tmp_path: Path, uri: str) -> None:
    async def run() -> None:
        async with assistant(open_library(tmp_path / "lib")) as client:
            with pytest.raises(MCPError, match="of this id that you may read: check the id"):
                await client.read_resource(uri)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_cancelled_call_stops_the_model(tmp_path: Path, transport: str) -> None:
    async def run() -> None:
        model = WaitingModel()
        async with assistant(open_library(tmp_path / "lib", model), transport) as client:
            task = asyncio.create_task(client.call_tool("ask", {"question": QUESTION}))
            await asyncio.wait_for(model.started.wait(), 30)
            task.cancel()
            await asyncio.wait_for(model.cancelled.wait(), 30)
        assert model.cancelled.is_set()

    asyncio.run(run())


# -- records of patients --------------------------------------------------------------------------------------------


def patients_in(text: object) -> set[int]:
    """Return the numbers of the patients whose words are in the text."""
    return {number for number in range(len(PATIENTS)) if word(number) in str(text)}


def ward(folder: Path, model: Any = None, **settings: Any) -> OpenLibrary:
    """Return a library of the notes of all patients, and of papers."""
    return open_library(folder / "ward", model, [*notes(), *papers()], k=30, **settings)


def test_library_of_notes_without_patient_is_refused(tmp_path: Path) -> None:
    library = ward(tmp_path)
    with pytest.raises(InputError, match="name the patient with --patient"):
        make_server(library)


def test_find_patients_of_unknown_patient_raises(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no notes of patient"):
        find_patients(ward(tmp_path), ["P-9"])


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["ask", "evidence", "search"])
@pytest.mark.parametrize("number", [0, 3])
def test_tools_read_only_the_record_of_the_named_patient(tmp_path: Path, tool: str, number: int) -> None:
    model = recorder()
    patient = PATIENTS[number]
    arguments = {"patient": patient, "query" if tool == "search" else "question": QUESTION}
    if tool != "ask":
        arguments["k" if tool == "search" else "sentences"] = 30  # type: ignore[assignment]
    result = asyncio.run(call(ward(tmp_path, model), tool, frozenset({patient}), **arguments))
    assert not result.is_error, text_of(result)
    read = [text_of(result), result.structured_content, *(request.messages for request in model.requests)]
    assert patients_in(read) == {number}
    if tool == "ask":
        assert result.structured_content["patient"] == patient


@pytest.mark.slow
@pytest.mark.parametrize("other", [PATIENTS[1], "nobody"])
@pytest.mark.parametrize("tool", ["ask", "evidence", "search"])
def test_other_patient_is_refused_whether_known_or_not(tmp_path: Path, tool: str, other: str) -> None:
    model = recorder()
    argument = "query" if tool == "search" else "question"
    library = ward(tmp_path, model)
    result = asyncio.run(call(library, tool, frozenset({PATIENTS[0]}), **{argument: QUESTION, "patient": other}))
    assert result.is_error
    expected = f"this server does not read the record of patient {other!a}: ask about its own patient"
    assert text_of(result) == f"Error executing tool {tool}: {expected}"
    assert model.requests == []


@pytest.mark.slow
def test_call_without_patient_reads_literature_only(tmp_path: Path) -> None:
    library = ward(tmp_path)
    result = asyncio.run(call(library, "search", frozenset({PATIENTS[0]}), query=QUESTION, k=30))
    ids = {hit["document_id"] for hit in result.structured_content["hits"]}
    assert ids == {f"paper:{number}" for number in range(4)}


def test_record_resources_are_read_in_the_scope_of_their_patient(tmp_path: Path) -> None:
    note, other = f"note:{PATIENTS[1]}:{PATIENTS[0]}:1#0", f"note:{PATIENTS[2]}:{PATIENTS[1]}:1#0"

    async def run() -> None:
        async with assistant(ward(tmp_path), patients=frozenset({PATIENTS[0]})) as client:
            own = (await client.read_resource(passage_uri(note, PATIENTS[0]))).contents[0].text
            assert patients_in(own) == {0}
            paper = (await client.read_resource(passage_uri("paper:0#0"))).contents[0].text
            assert word(LITERATURE) in paper
            for uri in (
                passage_uri(note),
                passage_uri(other, PATIENTS[0]),
                passage_uri(other, PATIENTS[1]),
                passage_uri(other.partition("#")[0], PATIENTS[0]).replace("passages/", "documents/"),
            ):
                with pytest.raises(MCPError):
                    await client.read_resource(uri)

    asyncio.run(run())


@pytest.mark.slow
def test_reading_a_record_is_in_the_access_log_and_literature_is_not(tmp_path: Path) -> None:
    library, log = ward(tmp_path), AccessLog(tmp_path / "access.jsonl")
    note = f"note:{PATIENTS[1]}:{PATIENTS[0]}:1#0"

    async def run() -> None:
        async with Client(make_server(library, frozenset({PATIENTS[0]}), log)) as client:
            await client.call_tool("search", {"query": QUESTION, "patient": PATIENTS[0]})
            await client.call_tool("evidence", {"question": QUESTION, "patient": PATIENTS[0]})
            await client.read_resource(passage_uri(note, PATIENTS[0]))
            await client.call_tool("search", {"query": QUESTION, "patient": PATIENTS[1]})

    asyncio.run(run())
    *entries, refused = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert (refused["action"], refused["outcome"], refused["patient"]) == ("mcp", "refused", PATIENTS[1])
    assert {entry["outcome"] for entry in entries} == {"allowed"}
    assert {entry["action"] for entry in entries} == {"search", "ask", "passage"}
    assert {entry["patient"] for entry in entries} == {PATIENTS[0]}
    assert entries[-1]["documents"] == [note.partition("#")[0]]
    assert all(entry["user"].startswith("assistant of ") for entry in entries)
    assert QUESTION not in log.path.read_text()
    assert AccessLog(log.path).verify().fault is None


# -- over HTTP ------------------------------------------------------------------------------------------------------

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}


@asynccontextmanager
async def http(*libraries: OpenLibrary, folder: Path | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        running(create_app(open_resources(*libraries), ServerOptions(folder=folder))) as url,
        httpx2.AsyncClient(base_url=url, headers=HEADERS) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "epicrisis.attacker.example"}, 421),
        ({"Host": "127.0.0.1.attacker.example:8080"}, 421),
        ({"Origin": "http://attacker.example"}, 421),
        ({"Origin": "null"}, 421),
    ],
)
def test_http_request_from_another_host_or_origin_is_refused(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async def run() -> int:
        async with http(open_library(tmp_path / "lib")) as client:
            return (await client.post("/mcp", json=LIST, headers=headers)).status_code

    assert asyncio.run(run()) == status


@pytest.mark.slow
def test_http_library_is_named_in_the_path_and_notes_are_not_offered(tmp_path: Path) -> None:
    async def run() -> dict[str, int]:
        libraries = ward(tmp_path), open_library(tmp_path / "first"), open_library(tmp_path / "second")
        key = UserStore(tmp_path / USERS_FILE).add("maria", "patient-reader")
        async with http(*libraries, folder=tmp_path) as client:
            assert (await client.post("/mcp", json=LIST)).status_code == 401
            client.headers["Authorization"] = f"Bearer {key}"
            paths = ("/mcp", "/mcp/first", "/mcp/second", "/mcp/ward", "/mcp/third", "/mcp/../etc")
            return {path: (await client.post(path, json=LIST)).status_code for path in paths}

    statuses = asyncio.run(run())
    found = {path for path, status in statuses.items() if status == 200}
    assert found == {"/mcp", "/mcp/first", "/mcp/second"}
    assert {statuses["/mcp/ward"], statuses["/mcp/third"], statuses["/mcp/../etc"]} == {404}


@pytest.mark.slow
def test_http_body_over_limit_is_refused(tmp_path: Path) -> None:
    async def run() -> int:
        async with http(open_library(tmp_path / "lib")) as client:
            return (await client.post("/mcp", json={**LIST, "params": {"x": "y" * 1_100_000}})).status_code

    assert asyncio.run(run()) == 413


@pytest.mark.slow
def test_http_get_opens_no_endless_stream(tmp_path: Path) -> None:
    """Without sessions the stream of a GET would carry nothing, and hold its connection."""

    async def request() -> tuple[int, str]:
        async with http(open_library(tmp_path / "lib")) as client, asyncio.timeout(5):
            response = await client.get("/mcp", headers={"accept": "text/event-stream"})
            return response.status_code, response.headers["allow"]

    assert asyncio.run(request()) == (405, "POST")
