"""What the commands import before they answer. Seconds depend on the machine; the imported modules do not.

Importing `lancedb` costs 0.95 s of CPU, `openai` 0.4 s, `fastapi` 0.2 s, `numpy` or all modules of commands 0.1 s.
A module that is not allowed here belongs inside the function that needs it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import Run
from tests.support.loopback import USAGE, Scripted, completion, serving
from tests.support.postgresql_server import find_free_port
from tests.support.server_processes import ServerProcess

HEAVY = frozenset(
    {
        "PIL",
        "aiohttp",
        "altair",
        "authlib",
        "docx",
        "fastapi",
        "genai_prices",
        "httpx",
        "httpx2",
        "huggingface_hub",
        "jinja2",
        "jsonschema_rs",
        "lancedb",
        "lxml",
        "markitdown",
        "mcp",
        "numpy",
        "onnxruntime",
        "openai",
        "pandas",
        "prometheus_client",
        "pyarrow",
        "pydantic",
        "pydantic_settings",
        "pypdfium2",
        "python_calamine",
        "rich",
        "selectolax",
        "starlette",
        "tantivy",
        "tokenizers",
        "torch",
        "transformers",
        "uvicorn",
        "vl_convert",
        "xllamacpp",
        "epicrisis.answering",
        "epicrisis.cli.ask",
        "epicrisis.cli.doctor",
        "epicrisis.cli.library",
        "epicrisis.corpus.readers.sources",
        "epicrisis.evaluation",
        "epicrisis.library.write.ingest",
        "epicrisis.models.chat",
        "epicrisis.pipeline.pipeline",
        "epicrisis.pipeline.plan",
        "epicrisis.report.answer_warnings",
        "epicrisis.report.page",
        "epicrisis.retrieval.time_expressions",
        "epicrisis.server",
    }
)
SCRIPT = """
import sys
from epicrisis.cli.program import main
sys.argv[0] = "epicrisis"
try:
    main()
except SystemExit as ending:
    print("\\nimported", ending.code, *sorted(sys.modules))
"""


def list_heavy_modules(*arguments: object) -> frozenset[str]:
    """Return the heavy modules that a command has imported at its end. It must succeed."""
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    code, *modules = output.rpartition("\nimported ")[2].split()
    assert code == "0", output
    return HEAVY.intersection(modules)


@pytest.mark.slow
def test_help_of_a_command_imports_only_what_draws_it() -> None:
    assert list_heavy_modules("search", "--help") <= {"pydantic", "rich", "epicrisis.cli.ask"}


@pytest.mark.slow
def test_help_of_the_program_imports_commands_without_what_they_need() -> None:
    modules = {"epicrisis.cli.ask", "epicrisis.cli.doctor", "epicrisis.evaluation"}
    assert list_heavy_modules("--help") == {"rich"} | modules


@pytest.mark.long
def test_commands_on_a_library_import_only_what_they_need(small_library: Path) -> None:
    allowed = {"pydantic", "tantivy"}
    assert list_heavy_modules("library", "info", small_library) <= allowed | {"epicrisis.cli.library"}
    allowed |= {"rich", "epicrisis.cli.ask"}
    assert list_heavy_modules("search", small_library, "aspirin", "--by", "bm25") <= allowed
    allowed |= {"numpy", "onnxruntime", "tokenizers"}
    assert list_heavy_modules("search", small_library, "aspirin") <= allowed


@pytest.mark.long
def test_question_imports_only_what_answers_it(small_library: Path) -> None:
    allowed = {"numpy", "onnxruntime", "pydantic", "rich", "tantivy", "tokenizers", "epicrisis.answering"}
    allowed |= {
        "epicrisis.cli.ask",
        "epicrisis.models.chat",
        "epicrisis.pipeline.pipeline",
        "epicrisis.report.answer_warnings",
    }
    assert list_heavy_modules("ask", small_library, "Does aspirin help?") <= allowed
    with serving() as endpoint:
        endpoint.script["/v1/chat/completions"] = [Scripted(completion("Yes.", usage=USAGE))]
        question = ("ask", small_library, "Does aspirin help?", "--strategy", "rag", "--model", f"{endpoint.url}/v1#m")
        assert list_heavy_modules(*question) <= allowed | {"httpx2", "jinja2", "jsonschema_rs"}


@pytest.mark.long
def test_file_of_questions_is_answered_without_the_evaluation(small_library: Path, tmp_path: Path) -> None:
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    questions.write_text('{"question": "Does aspirin help?"}\n')
    modules = list_heavy_modules("ask", small_library, "--file", questions, "-o", answers, "--yes")
    assert "epicrisis.answering" in modules
    assert "epicrisis.evaluation" not in modules


@pytest.mark.long
@pytest.mark.parametrize("has_runs", [False, True])
def test_server_imports_the_evaluation_for_a_folder_of_runs_alone(
    small_library: Path, tmp_path: Path, has_runs: bool
) -> None:
    port = find_free_port()
    options = ("--folder", tmp_path / "server", "--port", port)
    runs = ("--runs", tmp_path) if has_runs else ()
    command = [sys.executable, "-c", SCRIPT, "serve", *map(str, (small_library, *options, *runs))]
    with (tmp_path / "output").open("w+") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        server = ServerProcess(process, port, tmp_path / "output")
        try:
            server.wait()
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                pages = [client.get(path).status_code for path in ("/", "/runs", "/libraries", "/api/v1/runs")]
                job = client.post("/api/v1/jobs", json={"questions": [{"question": "Does aspirin help?"}]}).json()
                while client.get(f"/api/v1/jobs/{job['id']}").json()["state"] == "running":
                    time.sleep(0.05)
                assert "answered" in client.get(f"/api/v1/jobs/{job['id']}/answers").text
        finally:
            process.terminate()
    assert pages == [200] * 4
    code, *modules = (tmp_path / "output").read_text().rpartition("\nimported ")[2].split()
    assert code == "0"
    assert "fastapi" in modules
    assert ("epicrisis.evaluation" in modules) == has_runs


@pytest.mark.long
def test_second_question_to_an_endpoint_sends_no_probe(small_library: Path, run: Run) -> None:
    question = ("ask", small_library, "Does aspirin help?", "--strategy", "rag", "--setting", "cache.mode=off")
    with serving() as endpoint:
        endpoint.script["/v1/chat/completions"] = [Scripted(completion("Yes.", usage=USAGE))]
        for probes in (4, 0):
            endpoint.asked.clear()
            run(*question, "--model", f"{endpoint.url}/v1#m")
            paths = [path for path, _, _ in endpoint.asked]
            assert "/v1/chat/completions" not in paths[:probes]
            # The window of a model that Ollama has loaded by now is asked of it each time.
            assert set(paths[probes:]) - {"/api/ps"} == {"/v1/chat/completions"}
