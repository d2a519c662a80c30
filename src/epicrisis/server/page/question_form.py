"""The form for a question: what it offers, and how its fields become the body of a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from epicrisis.answering.strategy import find_strategy
from epicrisis.core.errors import InputError
from epicrisis.core.printable import printable
from epicrisis.server.base.users import Caller
from epicrisis.server.libraries.asked_questions import QuestionBody
from epicrisis.server.libraries.reading import PatientBody, ReadBody
from epicrisis.server.libraries.resources import OpenLibrary, Resources

_FIELDS = ("question", "library", "patient", "break_glass", "options", "strategy", "k", "since", "types", "document")
_SETTINGS = ("strategy", "k", "since")
_FIELD_NAMES = {
    "question": "Question",
    "options": "Answer options",
    "library": "Library",
    "patient": "Patient",
    "break_glass": "Reason for reading",
    "settings": "Filters and settings",
    "strategy": "How to answer",
    "k": "Documents to read",
    "since": "Published since",
    "types": "Publication types",
    "id": "Note",
    "words": "Words",
    "first_year": "From year",
    "last_year": "To year",
    "study_type": "Study type",
    "page": "Page",
}
_MAX_FIELDS = 500
"""Of one form: a review may name many reviewers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskForm:
    """Everything the form shows."""

    libraries: tuple[OpenLibrary, ...]
    strategies: tuple[tuple[str, str], ...]
    """Name and label of each strategy, that of the server first."""
    has_patients: bool
    is_about_patient: bool
    """Whether the fields of a patient are open: the library holds notes, or a patient is filled in."""
    default_k: int
    hint: str
    facts: tuple[tuple[str, str], ...]
    """What the server uses, as name and value."""
    values: Mapping[str, str]
    """The fields that are filled in, by name."""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FormFields:
    """The fields of a sent form."""

    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, body: bytes) -> FormFields:
        """Return the known fields of a URL-encoded body. Raises InputError for one that is not UTF-8 or too long."""
        return cls({name: values[-1].strip() for name, values in parse_form(body).items() if name in _FIELDS})

    def to_body(self) -> QuestionBody:
        """Return the question of the form. Raises InputError with the name of a field that is wrong."""
        settings: dict[str, Any] = {name: self.values[name] for name in _SETTINGS if self.values.get(name)}
        if types := split_list(self.values.get("types", "")):
            settings["types"] = types
        data: dict[str, Any] = {"question": self.values.get("question", ""), "settings": settings}
        if options := split_list(self.values.get("options", "")):
            data["options"] = options
        for name in ("library", "patient", "break_glass"):
            if self.values.get(name):
                data[name] = self.values[name]
        return read_body(QuestionBody, data)

    def to_patient(self) -> PatientBody:
        """Return the patient of the form. Raises InputError with the name of a field that is wrong."""
        return read_body(PatientBody, self._pick({"library": "library", "patient": "patient"}))

    def to_note(self) -> ReadBody:
        """Return the note of the form with its patient. Raises InputError with the name of a field that is wrong."""
        return read_body(ReadBody, self._pick({"library": "library", "patient": "patient", "id": "document"}))

    def _pick(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return the fields that are filled in, and the reason for reading, by the names of a body."""
        names = {**names, "break_glass": "break_glass"}
        return {name: self.values[field_] for name, field_ in names.items() if self.values.get(field_)}


def parse_form(body: bytes) -> dict[str, list[str]]:
    """Return the values of a URL-encoded body by name. Raises InputError for one that is not UTF-8 or too long."""
    try:
        pairs = parse_qsl(body.decode("ascii"), encoding="utf-8", errors="strict", max_num_fields=_MAX_FIELDS)
    except (UnicodeDecodeError, ValueError):
        raise InputError("the form cannot be read: send it again from the page") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


Body = TypeVar("Body", bound=BaseModel)


def read_body(kind: type[Body], data: Mapping[str, Any]) -> Body:
    """Return the body of a request from the fields of a form. Raises InputError with the name of a wrong field."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = next((_FIELD_NAMES[str(part)] for part in reversed(fault["loc"]) if part in _FIELD_NAMES), "Form")
        raise InputError(printable(f"{place}: {fault['msg']}")) from None


def split_list(text: str) -> list[str]:
    """Return the parts of a text between commas, without blanks and empty parts."""
    return [part.strip() for part in text.split(",") if part.strip()]


def build_form(
    resources: Resources, caller: Caller, fields: FormFields = FormFields(), faults: Sequence[str] = ()
) -> AskForm:
    """Return the form for a caller, with the fields filled in. Raises AccessDenied if no library may be read."""
    reads_patients = caller.has("patient-reader")
    libraries = tuple(
        library for library in resources.libraries.values() if reads_patients or not library.holds_patients
    )
    if not libraries:
        caller.require("patient-reader")
    chosen = libraries[0]
    for library in libraries:
        if library.name == fields.values.get("library"):
            chosen = library
    strategies = tuple((name, find_strategy(name).label) for name in chosen.strategies)
    values = {name: fields.values.get(name, "") for name in _FIELDS}
    values["strategy"] = values["strategy"] or chosen.strategies[0]
    settings = chosen.pipeline.settings
    needs_model = find_strategy(chosen.strategies[0]).needs_model
    hosts = list_contacted_hosts(chosen)
    return AskForm(
        libraries=libraries,
        strategies=strategies,
        is_about_patient=chosen.holds_patients or bool(values["patient"]),
        has_patients=any(library.holds_patients for library in libraries),
        default_k=settings.k,
        hint=_describe_hosts(hosts, needs_model),
        facts=describe_setup(chosen, resources.sign_in_host),
        values=values,
        faults=tuple(map(printable, faults)),
    )


def _describe_hosts(hosts: Sequence[str], needs_model: bool) -> str:
    if hosts:
        return printable(f"Your question and the passages found are sent to {', '.join(hosts)}.")
    if needs_model:
        return "Your question stays on this machine."
    return "No chat model is used. Your question stays on this machine."


def describe_setup(library: OpenLibrary, sign_in_host: str = "") -> tuple[tuple[str, str], ...]:
    """Return what answers the questions of a library, as pairs of name and value.

    `sign_in_host`: the host of the identity provider, which receives no question and no text.
    """
    settings = library.pipeline.settings
    models = sorted({model.name for model in library.pipeline.models.values()})
    facts = [
        ("Library", library.name),
        ("Chat model", ", ".join(models) or "none"),
        ("Hosts contacted", ", ".join(list_contacted_hosts(library)) or "none outside this machine"),
        ("Search", {"dense": "by meaning", "bm25": "by words", "hybrid": "by meaning and by words"}[settings.by]),
        ("Check of claims", settings.check),
    ]
    if sign_in_host:
        facts.insert(3, ("Host for signing in", f"{sign_in_host} (receives no question and no text)"))
    return tuple((name, printable(value)) for name, value in facts)


def list_contacted_hosts(library: OpenLibrary) -> tuple[str, ...]:
    """Return the other machines that a question to this library may be sent to."""
    settings = library.pipeline.settings
    if settings.local_only or not find_strategy(library.strategies[0]).needs_model:
        return ()
    return tuple(sorted({host for _, host in settings.remote_hosts()}))
