"""Reference pages of the site, made from the code: commands, settings, file formats, HTTP API and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from epicrisis.answering.strategy import list_strategies
from epicrisis.cli.program import app
from epicrisis.core import errors
from epicrisis.corpus.readers import formats
from epicrisis.corpus.readers import sources as readers
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.http_errors import STATUS, find_status
from epicrisis.server.libraries.resources import Resources
from epicrisis.settings.configuration import setting_rows

FORMAT_MEANINGS = {
    **{name: described.help for name, described in formats.FORMATS.items()},
    "pubmed": "PubMed's XML: baseline, update files, results of E-utilities",
    "medcpt": "NCBI's folders of PubMed articles with their MedCPT vectors",
    "pubmedqa": "PubMedQA's JSON: each question's abstract",
    "references": "files of reference managers: nbib, RIS, BibTeX, CSL-JSON",
    "notes": "patients' notes in CSV: MIMIC, or columns named by `--column`",
    "fhir": "patients' notes and structured data in FHIR R4 and R5: bundles and NDJSON",
    "ccda": "clinical documents in C-CDA (XML)",
    "hl7": "messages of HL7 v2: results (ORU), documents (MDM) and stays (ADT)",
    "omop": "tables of the OMOP common data model (CSV, Parquet)",
    "mimic": "tables of MIMIC-III and MIMIC-IV with structured data (CSV)",
}
SHARED_ENDINGS = {
    "xml": ("pubmed", "nxml", "ccda"),
    "csv": ("notes", "retraction-watch", "omop", "mimic"),
    "json": ("fhir", "references", "pubmedqa"),
}
"""Formats whose files have the same endings: the beginning of the file decides."""


def make_pages() -> Mapping[str, str]:
    """Map the path of every page below `docs/` to its Markdown."""
    return {
        "reference/commands.md": "\n".join(_describe_commands()),
        "reference/settings.md": "\n".join(_describe_settings()),
        "reference/strategies.md": "\n".join(_describe_strategies()),
        "reference/file-formats.md": "\n".join(_describe_file_formats()),
        "reference/http-api.md": "\n".join(_describe_http_api()),
        "reference/errors.md": "\n".join(_describe_errors()),
    }


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = ["", _make_row(columns), "|" + "---|" * len(columns)]
    for row in rows:
        lines.append(_make_row(row))
    return [*lines, ""]


def _make_row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _describe_commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "Every command with its arguments and options. `epicrisis COMMAND --help` says the same in the terminal."
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        yield from _describe_command(f"epicrisis {name}", command, "##")


def _describe_command(path: str, command: Any, heading: str) -> Iterator[str]:
    if command.hidden:
        return
    yield f"\n{heading} {path}\n"
    yield command.help or ""
    examples = [part for part in (command.epilog or "").split("\n\n") if part.startswith("epicrisis ")]
    if examples:
        yield "\n".join(("\n```", *examples, "```"))
    rows = []
    for parameter in command.params:
        if not parameter.hidden and parameter.name != "help":
            rows.append(_describe_parameter(parameter))
    if rows:
        yield from make_table(("Argument or option", "Default", "Meaning"), rows)
    for name, child in getattr(command, "commands", {}).items():
        yield from _describe_command(f"{path} {name}", child, heading + "#")


def _describe_parameter(parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        name = str(parameter.metavar or parameter.name).upper()
    else:
        name = ", ".join((*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    if parameter.required:
        value = "required"
    elif default is None or default is False or callable(default):
        value = ""
    else:
        value = f"`{default}`"
    return f"`{name}`", value, parameter.help or ""


def _describe_settings() -> Iterator[str]:
    yield "# All settings\n"
    yield "[Settings](../settings.md) says where they are given. `epicrisis settings` prints this table with the"
    yield "values in effect. Hosts are contacted only where a setting or an option names them."
    rows = []
    for row in setting_rows():
        default = f"`{row.default}`" if row.default else ""
        rows.append((f"`{row.key}`", default, row.unit, row.meaning))
    yield from make_table(("Setting", "Default", "Unit", "Meaning"), rows)


def _describe_strategies() -> Iterator[str]:
    yield "# Strategies\n"
    yield "How a question is answered: `--strategy NAME`. [Settings](../settings.md#strategies) says what changes them."
    rows = []
    for strategy in list_strategies():
        needs = {
            "library": strategy.needs_library,
            "chat model": strategy.needs_model,
            "solved questions": strategy.examples == "required",
        }
        rows.append(
            (f"`{strategy.name}`", strategy.help, ", ".join(name for name, is_needed in needs.items() if is_needed))
        )
    yield from make_table(("Strategy", "What it reads, and how it answers", "Needs"), rows)


def _describe_file_formats() -> Iterator[str]:
    yield "# File formats\n"
    yield "`epicrisis library add` knows a file by its ending, and by its beginning where several formats share one."
    yield "`--format NAME` reads a file with any ending as this format. What becomes text, and what is left out:"
    yield "[documents](../documents.md#what-becomes-text), [notes](../records.md#how-notes-are-read)."
    suffixes: dict[str, list[str]] = {}
    for suffix, ending in readers.FORMAT_BY_SUFFIX.items():
        for name in SHARED_ENDINGS.get(ending, (ending,)):
            suffixes.setdefault(name, []).append(f"`{suffix}`")
    rows = []
    for name in readers.FORMATS:
        # A format without a meaning ends the build.
        rows.append((f"`{name}`", ", ".join(suffixes.pop(name, ())) or "only with `--format`", FORMAT_MEANINGS[name]))
    if suffixes:
        raise LookupError(f"no format reads {suffixes}: change SHARED_ENDINGS")
    yield from make_table(("Format", "Endings", "Files"), rows)


def _describe_http_api() -> Iterator[str]:
    schema = create_app(Resources({}), ServerOptions(runs=Path("runs"))).openapi()
    yield "# HTTP API\n"
    yield "[Other programs](../interfaces.md) says how to ask, [deploy](../deployment.md) who may. A running server has"
    yield "the same in"
    yield "`/openapi.json`, with the schema of every body and examples. Errors: [status codes](errors.md)."
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield f"\n## {method.upper()} {path}\n"
            yield operation.get("description") or operation.get("summary", "")
            rows: list[tuple[str, ...]] = []
            for parameter in operation.get("parameters", ()):
                place = f"{parameter['in']}{', required' if parameter.get('required') else ''}"
                rows.append((f"`{parameter['name']}`", place, parameter.get("description", "")))
            rows += _describe_body(schema, operation)
            if rows:
                yield from make_table(("Field", "Place", "Meaning"), rows)


def _describe_body(schema: Mapping[str, Any], operation: Mapping[str, Any]) -> list[tuple[str, ...]]:
    content = operation.get("requestBody", {}).get("content", {})
    body = content.get("application/json", {}).get("schema", {})
    name = body.get("$ref", "").rpartition("/")[2]
    model = schema.get("components", {}).get("schemas", {}).get(name, {})
    return list(_describe_fields(schema, model))


def _describe_fields(
    schema: Mapping[str, Any], model: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, ...]]:
    """Yield name, place and meaning of every field of a body, with the fields of those that are objects."""
    for field, value in model.get("properties", {}).items():
        place = "body, required" if field in model.get("required", ()) else "body"
        references = [option["$ref"] for option in (value, *value.get("anyOf", ())) if "$ref" in option]
        child = schema["components"]["schemas"][references[0].rpartition("/")[2]] if references else {}
        meaning = value.get("description") or child.get("description", "").partition("\n")[0]
        yield f"`{prefix}{field}`", place, meaning
        yield from _describe_fields(schema, child, f"{prefix}{field}.")


def _describe_errors() -> Iterator[str]:
    yield "# Errors\n"
    yield "Every error says in one line what failed, why, and what to do. The command line ends with an exit code,"
    yield "the server answers with a status code and a body of the type `application/problem+json`. In Python, each is"
    yield "a class of `epicrisis.core.errors`."
    rows = []
    for kind in _list_classes(errors.EpicrisisError):
        if kind.__module__ == errors.__name__:
            again = "yes" if kind.retryable else ""
            meaning = (kind.__doc__ or "").partition("\n")[0]
            rows.append((f"`{kind.__name__}`", str(kind.exit_code), str(find_status(kind).code), again, meaning))
    yield from make_table(("Error", "Exit code", "Status code", "The same call may succeed later", "Meaning"), rows)
    yield "## Errors of the server alone\n"
    server_rows = []
    for kind, status in STATUS.items():
        if kind.__module__ != errors.__name__:
            server_rows.append((f"`{kind.__name__}`", str(status.code), status.title, status.cure))
    yield from make_table(("Error", "Status code", "Title", "What to do"), server_rows)


def _list_classes(kind: type[errors.EpicrisisError]) -> Iterator[type[errors.EpicrisisError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _list_classes(child)
