"""The base of settings tables: how a key is defined, and the types of values that are checked when they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, model_validator

from epicrisis.core.dates import last_day
from epicrisis.core.errors import InputError
from epicrisis.core.names import match_case
from epicrisis.core.types import DraftSelection, RuleName, SignalKind, TieRule
from epicrisis.settings.model_services import expand_model_name
from epicrisis.system.local_only import local_path, parse_host, split_addresses, strip_secrets
from epicrisis.system.remote_libraries import library_folder


def _check_date(date: str) -> str:
    last_day(date)
    return date


def _expand_local(path: Path) -> Path:
    try:
        return local_path(path)
    except InputError as error:
        raise ValueError(error.message) from None


def _find_library(path: Path) -> Path:
    try:
        return library_folder(path)
    except InputError as error:
        raise ValueError(error.message) from None


def _check_local(name: str) -> str:
    _expand_local(Path(name))
    return name


def _check_address(name: str) -> str:
    name = name.strip()
    if len(split_addresses(name)) > 1:
        return _check_pool(name)
    if not re.match(r"https?:", name, re.IGNORECASE):
        return name
    if parse_host(name) is None or strip_secrets(name).endswith("://..."):
        raise ValueError("this URL cannot be read: write it as http://HOST:PORT/v1#model-name")
    scheme, _, rest = name.partition(":")
    return f"{scheme.lower()}:{rest}"


def _check_pool(name: str) -> str:
    addresses = [_check_address(address) for address in split_addresses(name)]
    *urls, last = addresses
    if not last.partition("#")[2]:
        raise ValueError("name the model that all endpoints serve after the last URL: URL,URL#model-name")
    if any("?" in url for url in addresses) or len(set(addresses)) < len(addresses):
        raise ValueError("give each endpoint once, without parameters: URL,URL#model-name")
    return ",".join((*(url.partition("#")[0] for url in urls), last))


def _check_variable(name: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", name):
        raise ValueError("give the name of the variable with the key (capitals, digits, _), not the key")
    return name


Date = Annotated[str, AfterValidator(_check_date)]
LocalPath = Annotated[Path, AfterValidator(_expand_local)]
LibraryFolder = Annotated[Path, AfterValidator(_find_library)]
"""The folder of a library, given as such or as a URL."""
NameOrPath = Annotated[str, AfterValidator(_check_local)]
"""A name of the catalogue, or a path."""
NameOrUrl = Annotated[str, AfterValidator(_check_address), PlainSerializer(strip_secrets)]
"""A name, a path or a URL. Serialized without secrets."""
ModelName = Annotated[
    str, AfterValidator(expand_model_name), AfterValidator(_check_address), PlainSerializer(strip_secrets)
]
"""A chat model: a name, a path, a URL, or `SERVICE:MODEL`, which becomes a URL."""
VariableName = Annotated[str, AfterValidator(_check_variable)]


def define_key(default: Any, meaning: str, unit: str = "", **constraints: Any) -> Any:
    """Build the field of a key. `constraints` are those of pydantic's `Field`."""
    return Field(default, description=meaning, json_schema_extra={"unit": unit}, **constraints)


def _list_choices(annotation: Any) -> list[str]:
    """Return the texts that a type names: those of `Literal`, also beside others, as in `Literal["a"] | None`."""
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if isinstance(value, str)]
    if get_origin(annotation) in (Union, UnionType):
        return [value for part in get_args(annotation) for value in _list_choices(part)]
    return []


class SettingsTable(BaseModel):
    """A table of settings: unknown keys are refused, and its representation contains no secrets."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_values(cls, values: Any) -> Any:
        """Accept one text for a list of texts, such as `scope.types=Review`, and names in capitals, such as `BM25`."""
        if not isinstance(values, Mapping):
            return values
        wrapped = dict(values)
        for name, value in values.items():
            field = cls.model_fields.get(name)
            if not isinstance(value, str) or field is None:
                continue
            if get_origin(field.annotation) is tuple:
                wrapped[name] = (value,)
            else:
                wrapped[name] = match_case(value, _list_choices(field.annotation))
        return wrapped

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for key, value in super().__repr_args__():
            yield key, strip_secrets(value) if isinstance(value, str) else value

    def __hash__(self) -> int:
        """Return a hash of the representation, since some tables contain dictionaries."""
        return hash(repr(self))


class DefenceSettings(SettingsTable):
    """Options against instructions and false statements in documents, in addition to the fence (all off by default)."""

    datamarking: bool = define_key(
        False, "Replace the spaces of documents by a mark. Costs more prompt tokens per word."
    )
    repeat: bool = define_key(False, "Repeat the task after the documents. Costs the task's tokens once more per call.")
    isolated_votes: bool = define_key(
        False,
        "Read each document alone and take the majority of their choices, with its margin. Costs one call per document "
        "and evidence that only several documents together give. Only for brief-context and questions with options.",
    )
    structured_findings: bool = define_key(
        False,
        "Pass options and numbered sentences of map replies to the reduce call, and no free text. Costs what readers "
        "conclude from several sentences. Only for brief-context with citing = numbers.",
    )


class EnergySettings(SettingsTable):
    """Estimates of energy and emissions for runs without a power meter. They change no answer."""

    watts_per_core: float = define_key(
        12.0,
        "Power of a busy processor core if RAPL cannot be read, as Green Algorithms assumes for any processor.",
        "watts",
        ge=0,
    )
    endpoint_watts: float | None = define_key(
        None, "Power of all machines behind the endpoints during a run. Default: unknown.", "watts", ge=0
    )
    kg_co2_per_kwh: float = define_key(
        0.205,
        "Emissions of electricity. The default is that of the context-retrieval study for the European Union (Table "
        "13: 197.31 kg for 962.48 kWh).",
        "kg CO2 per kWh",
        ge=0,
    )


class RefineSettings(SettingsTable):
    """OpenMedprompt: ensemble refining, self-reflection, and the choice of the final draft."""

    drafts: int = define_key(5, "Drafts of ensemble refining.", "drafts", ge=1, le=1000)
    rounds: int = define_key(5, "Rounds of self-reflection.", "rounds", ge=0, le=1000)
    reward_model: NameOrPath | None = define_key(
        None, "Trained reward model: a catalogue name or a folder (extra torch)."
    )
    keep: DraftSelection | None = define_key(
        None, "Which draft is the answer: last, or best by reward. Default: best with a reward model, else last."
    )


class PlanSettings(SettingsTable):
    """Limits above which a run asks for confirmation first."""

    ask_above_usd: float = define_key(5.0, "Ask first if a run is expected to cost more.", "US$", ge=0)
    ask_above_tokens: int = define_key(
        20_000_000, "Ask first if a run at an unknown price may use more.", "tokens", ge=0
    )


class LiteratureSettings(SettingsTable):
    """Services that `library add --pmid, --doi, --search` asks. No other command contacts them."""

    pubmed: NameOrUrl = define_key(
        "https://eutils.ncbi.nlm.nih.gov/entrez/eutils", "Address of NCBI's E-utilities, or of a mirror.", "URL"
    )
    europe_pmc: NameOrUrl = define_key(
        "https://www.ebi.ac.uk/europepmc/webservices/rest", "Address of Europe PMC's REST API, or of a mirror.", "URL"
    )
    email: str | None = define_key(None, "Your e-mail address, which NCBI asks programs to send with each request.")
    cache_days: float = define_key(
        7.0, "Age up to which responses in the home folder are used again. 0 fetches everything anew.", "days", ge=0
    )


class VoteSettings(SettingsTable):
    """Self-consistency: sample several answers to the same question, and take the majority."""

    n: int = define_key(5, "Sampled answers per question.", "votes", ge=1, le=1000)
    temperature: float = define_key(0.7, "Sampling temperature of the votes.", ge=0, le=2)
    top_p: float = define_key(1.0, "Nucleus sampling of the votes.", gt=0, le=1)
    shuffle: bool | None = define_key(None, "Shuffle the options for each vote. Default: as the strategy does.")
    tie: TieRule = define_key("abstain", "What a tied vote decides: abstain, or first-vote.")


class CacheSettings(SettingsTable):
    """The cache of replies: the same call is not paid for twice."""

    mode: Literal["on", "off", "replay"] = define_key(
        "on", "Cache replies: on, off, or replay (answer from the cache only, contact nothing)."
    )
    path: LocalPath | None = define_key(
        None,
        "Folder of the cache. Default: in the library, or with the models without one. For a library of patient notes "
        "it is always in the library.",
        "path",
    )


class PreflightSettings(SettingsTable):
    """The preflight check. With signal, n or threshold set, the others default to the paper's: overlap, 3, 0.2
    (errata B2). `epicrisis preflight calibrate` fits them to a library."""

    enabled: bool = define_key(True, "Check before map-reduce whether one prompt is enough.")
    rule: RuleName = define_key(
        "fitted",
        "Rule if signal, n and threshold are not set: fitted to the library's encoder, or the paper's. A notice names "
        "the rule used for records, passages and encoders without a fitted one.",
    )
    signal: SignalKind | None = define_key(None, "Signal of the check. Default: of the rule.")
    n: int | None = define_key(
        None, "Length of the compared lists. Default: of the rule.", "documents or passages", ge=1
    )
    threshold: float | None = define_key(
        None,
        "One prompt is enough if the signal is greater: below 1 for an overlap, in the ranker's scores for a gap. "
        "Default: of the rule.",
        ge=0,
    )
    depth: int = define_key(16, "How much of the dense ranking is ranked again.", "documents or passages", ge=1)

    @property
    def uses_named_rule(self) -> bool:
        """Whether `rule` decides, as signal, n and threshold are not set."""
        return self.signal is None and self.n is None and self.threshold is None
