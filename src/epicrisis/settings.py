"""Typed settings: every table and key there is, with its default. `configuration` reads them.

Settings hold no key, only where one is. What of an address is secret (user, password) stands in no representation of
them, written out or not, and in no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, model_validator

from epicrisis.dates import last_day
from epicrisis.errors import InputError
from epicrisis.privacy import local_path, parse_host, remote_host, strip_secrets
from epicrisis.types import (
    CountUnit,
    DraftSelection,
    EvidenceOrder,
    EvidenceUnit,
    ExtractionTarget,
    LongQuestionPolicy,
    RuleName,
    SearchMode,
    SignalKind,
    StrategyName,
    TieRule,
    UnverifiedPolicy,
)

ROLES = ("writer", "map", "reduce")

API_KEY_VARIABLE = "EPICRISIS_API_KEY"
"""Begins the names of variables that hold endpoints' keys (`EPICRISIS_API_KEY_MAP`)."""


MAX_RERANKED = 1000


def _date(value: str) -> str:
    last_day(value)
    return value


def _local(path: Path) -> Path:
    try:
        return local_path(path)
    except InputError as error:
        raise ValueError(error.message) from None


def _installed(name: str) -> str:
    _local(Path(name))
    return name


def _address(name: str) -> str:
    name = name.strip()
    if not re.match(r"https?:", name, re.IGNORECASE):
        return name
    if parse_host(name) is None or strip_secrets(name).endswith("://..."):
        raise ValueError("this URL cannot be read: write it as http://HOST:PORT/v1#model-name")
    scheme, _, rest = name.partition(":")
    return f"{scheme.lower()}:{rest}"


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", name):
        raise ValueError("give the name of the variable that holds the key (capitals, digits, _), not the key")
    return name


Date = Annotated[str, AfterValidator(_date)]
LocalPath = Annotated[Path, AfterValidator(_local)]
Installed = Annotated[str, AfterValidator(_installed)]
"""A name of the catalogue, or a path."""
Address = Annotated[str, AfterValidator(_address), PlainSerializer(strip_secrets)]
"""A name, a path or a URL. Written out it has lost its secrets."""
Variable = Annotated[str, AfterValidator(_variable)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for key, value in super().__repr_args__():
            yield key, strip_secrets(value) if isinstance(value, str) else value

    def __hash__(self) -> int:
        """Tables with free parameters hold dictionaries, which have no hash of their own."""
        return hash(repr(self))


class Price(_Table):
    """US dollars for a million tokens. `cached`: of those of the prompt that the endpoint had computed before."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(None, ge=0)


class ModelSettings(_Table):
    """One chat model."""

    name: Address = "smollm2-135m"
    """A name of the catalogue, a `.gguf` file, or the URL of an OpenAI-compatible endpoint
    (`http://127.0.0.1:8000/v1#model-name`)."""
    api_key_env: Variable = API_KEY_VARIABLE
    """The environment variable that holds the endpoint's key. Read when a client is made. Not `OPENAI_API_KEY` by
    default: a key meant for one service would go to whatever endpoint is named."""
    api_key_file: LocalPath | None = None
    """A file that holds the key and nothing else; goes before the variable."""
    context_tokens: int | None = Field(None, ge=256)
    """The window, where the endpoint does not tell; for the embedded model the window to make."""
    timeout_seconds: float = Field(600.0, gt=0)
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    concurrency: int = Field(8, ge=1)
    """Calls in flight at once, exactly. The embedded model has one slot and takes them in turn."""
    requests_per_minute: float | None = Field(None, gt=0)
    tokens_per_minute: float | None = Field(None, gt=0)
    """Prompt and completion together."""
    tries: int = Field(5, ge=1)
    """Of one call, where it fails in a way that may pass. Being told to wait (429) is no try."""
    retry_seconds: float = Field(120.0, gt=0)
    """How long a call may be tried again, all in all."""
    max_reasoning_tokens: int = Field(0, ge=0)
    """Room for thinking, beside the answer's. 0: the model is none that thinks."""
    json_schema: bool | None = None
    """Whether it can be held to a JSON schema; found out at the first call where not said."""
    option_logprobs: bool | None = None
    """Whether it tells the log-probabilities of tokens; found out likewise."""
    price: Price | None = None
    """Where not said: the installed price list, by endpoint and model; what it does not know is unknown, not free."""
    extra: dict[str, Any] = Field(default_factory=dict, repr=False)
    """Parameters of this endpoint alone, sent with every call (`{reasoning_effort = "low"}`)."""

    @property
    def is_endpoint(self) -> bool:
        """Whether it is asked over a network, if only this machine's; else it runs in this process."""
        return "://" in self.name


class ModelsByRole(_Table):
    """One chat model a role; without a name of its own it is the writer's. `judge` judges finished runs' answers,
    `reward` scores drafts of answers."""

    writer: ModelSettings = ModelSettings()
    map: ModelSettings | None = None
    reduce: ModelSettings | None = None
    judge: ModelSettings | None = None
    reward: ModelSettings | None = None
    """A chat model that marks drafts, where `refine.reward_model` is not at hand; without either nobody does."""


class PreflightSettings(_Table):
    """The preflight check. Where signal, n or threshold is given, the others are the paper's (errata B2): overlap, 3,
    0.2. `epicrisis preflight calibrate` fits them to a library."""

    enabled: bool = True
    rule: RuleName = "fitted"
    """Where none of the three is given: the rule fitted to the library's encoder (`retrieval.preflight`), or the
    paper's. Records, passages and encoders that none is fitted to have another one than the fitted; it is said."""
    signal: SignalKind | None = Field(None, exclude_if=lambda kind: kind is None)
    """What is looked at (`retrieval.signals`)."""
    n: int | None = Field(None, ge=1, exclude_if=lambda n: n is None)
    threshold: float | None = Field(None, ge=0, exclude_if=lambda threshold: threshold is None)
    """One prompt will do where the signal is greater: below 1 for an overlap, in the ranker's scores for a gap."""
    depth: int = Field(16, ge=1)
    """Documents, or passages, that are ranked anew; see `count`."""

    @property
    def is_named(self) -> bool:
        """Whether `rule` says what the check goes by, since signal, n and threshold are all left out."""
        return self.signal is None and self.n is None and self.threshold is None


class RerankSettings(_Table):
    """A reranker over the best `depth` passages: a catalogue name, a folder, or the URL of a `/v1/rerank` endpoint."""

    name: Address | None = None
    depth: int = Field(64, ge=1, le=MAX_RERANKED)
    api_key_env: Variable = API_KEY_VARIABLE


class VoteSettings(_Table):
    """Self-consistency: the same question asked so often, at that temperature, and the majority's choice taken."""

    n: int = Field(5, ge=1, le=1000)
    temperature: float = Field(0.7, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    shuffle: bool | None = None
    """The options in another order for each vote; where not said, as the strategy has it (Medprompt does)."""
    tie: TieRule = "abstain"


class ExampleSettings(_Table):
    """Solved questions to show before the question (`epicrisis examples build`)."""

    library: LocalPath | None = None
    encoder: Installed | None = None
    """What a new library of them is made with; where not said, `minilm`."""
    k: int = Field(5, ge=0, le=100)
    choose: Literal["nearest", "random", "fixed"] = "nearest"
    """`random`: others for each question, drawn by the seed; `fixed`: the same for all. Both are controls."""
    rerank: Address | None = None
    """A reranker over the nearest `rerank_times` k of them (errata P7: made for query and article)."""
    rerank_times: int = Field(3, ge=1, le=100)
    leak_similarity: float = Field(0.8, gt=0, le=1)
    """An example whose text is so similar to the question's is the question itself, and left out."""


class RefineSettings(_Table):
    """OpenMedprompt: drafts of ensemble refining, rounds of self-reflection, and which of its drafts is the answer."""

    drafts: int = Field(5, ge=1, le=1000)
    rounds: int = Field(5, ge=0, le=1000)
    reward_model: Installed | None = None
    """A trained reward model: a catalogue name or a folder (extra `torch`)."""
    keep: DraftSelection | None = None
    """Where not said: the best by the reward model where there is one, else the last."""


class CacheSettings(_Table):
    """Replies are kept by all that decides them, so that the same call is not paid for twice.

    `replay` answers from the cache alone and contacts nothing. Where no path is said it lies in the library, else among
    the models; a library of patients' notes has it inside or not at all.
    """

    mode: Literal["on", "off", "replay"] = "on"
    path: LocalPath | None = None


class BudgetSettings(_Table):
    """What a run may spend, retries included. It stops before it would spend more; what it has is kept."""

    tokens: int | None = Field(None, ge=1)
    """Prompt and completion together."""
    usd: float | None = Field(None, gt=0)
    minutes: float | None = Field(None, gt=0)


class PlanSettings(_Table):
    """A run that is expected to exceed one of these asks first."""

    ask_above_usd: float = Field(5.0, ge=0)
    ask_above_tokens: int = Field(20_000_000, ge=0)
    """Where the price is unknown."""


class EnergySettings(_Table):
    """What a run's energy is estimated by, where no meter tells it, and what it emits. No answer depends on it."""

    watts_per_core: float = Field(12.0, ge=0)
    """Of a processor core at work, where RAPL cannot be read: what Green Algorithms takes for any processor."""
    endpoint_watts: float | None = Field(None, ge=0)
    """Of all machines behind the endpoints together, while a run lasts; where not said their energy is unknown."""
    kg_co2_per_kwh: float = Field(0.205, ge=0)
    """Of the electricity. The context-retrieval study's (Table 13: 197.31 kg for 962.48 kWh), which calls it the
    European Union's; no one's grid in particular."""


class ScopeSettings(_Table):
    """What a search may see, beside the patient; see `epicrisis.types.Scope`. `hide_gold`: a question's own documents
    are hidden from it (leak guard, errata B15)."""

    as_of: Date | None = None
    since: Date | None = None
    types: tuple[str, ...] = ()
    journals: tuple[str, ...] = ()
    without: tuple[Literal["retracted"], ...] = ("retracted",)
    """What is left out: retracted articles, whenever they were retracted, and notices of retractions."""
    include: tuple[Literal["retracted"], ...] = ()
    """What is read all the same, marked (`--with`); it counts more than `without`."""
    hide: tuple[str, ...] = ()
    hide_gold: bool = False


class Settings(_Table):
    """All settings."""

    preset: str | None = None
    """Settings by one name (`presets.toml`), below all others: `cr`, `cr-benchmark`, `ehr`, `ehr-qwq-32b`, ..."""
    home: LocalPath = Path("~/.local/share/epicrisis")
    """Where pulled models lie."""
    encoder: Installed | None = None
    """Name or folder; where not said, the one the library was made with, and `minilm` for a new library."""
    models: ModelsByRole = ModelsByRole()
    by: SearchMode = "hybrid"
    strategy: StrategyName = "brief-context"
    k: int = Field(16, ge=1, le=1000)
    """Documents that are read, or passages; see `count`."""
    count: CountUnit | None = None
    """What `k`, `partition` and the preflight check count. Where not said documents, and passages of a patient's
    record."""
    partition: int = Field(4, ge=1)
    """Documents, or passages, a map call."""
    rrf_k: int = Field(60, ge=1)
    preflight: PreflightSettings = PreflightSettings()
    long_questions: LongQuestionPolicy = "segments"
    """What is done where a question is longer than the encoder's window."""
    rerank: RerankSettings = RerankSettings()
    fusion_times: int | None = Field(None, ge=1, exclude_if=lambda times: times is None)
    """So many times k hits of each ranking enter a fusion (the EHR study: 2); where not said 100, or k if more. Where
    documents are counted, k is the number of passages that they are chosen from."""
    fuse: tuple[LocalPath, ...] = ()
    """Further libraries of the same passages, made with other encoders: their dense rankings are fused."""
    beside: tuple[LocalPath, ...] = ()
    """Libraries of literature that are searched along with the first, in one ranking; no patient's notes of theirs."""
    unit: EvidenceUnit = Field("chunk", exclude_if=lambda unit: unit == "chunk")
    """What of a record is read: passages, or the `k` whole notes that the best of them stand in."""
    note_tokens: int | None = Field(None, ge=1, exclude_if=lambda tokens: tokens is None)
    """What whole notes may take together, by the writer's tokenizer; where not said, what its window leaves."""
    order: EvidenceOrder | None = Field(None, exclude_if=lambda order: order is None)
    """Where not said: by time where the question is of a patient, else by rank."""
    timeline: bool = Field(True, exclude_if=lambda on: on)
    """A question of a patient that says first, latest, during the second stay is held against the record's times."""
    extract: ExtractionTarget = Field("span", exclude_if=lambda extract: extract == "span")
    """What answers an extractive question."""
    unverified: UnverifiedPolicy = Field("abstain", exclude_if=lambda unverified: unverified == "keep")
    """What becomes of an answer from documents none of whose quotations stands in them: the question ends as an
    abstention that shows it, or it is kept as an answer. Experiments keep it unless told otherwise."""
    scope: ScopeSettings = ScopeSettings()
    votes: VoteSettings = VoteSettings()
    examples: ExampleSettings = ExampleSettings()
    refine: RefineSettings = RefineSettings()
    seed: int = 0
    deadline_seconds: float | None = Field(None, gt=0)
    questions_at_once: int | None = Field(None, ge=1)
    """Of a run; where not said as many as the writer takes calls at once, and one for embedded models."""
    cache: CacheSettings = CacheSettings()
    budget: BudgetSettings = BudgetSettings()
    plan: PlanSettings = PlanSettings()
    energy: EnergySettings = EnergySettings()
    record: LocalPath | None = None
    """A JSONL file for every prompt and reply. It holds their texts: whoever reads it reads the documents."""
    log: LocalPath | None = None
    """A file for what happens: ids and counts, no text but with `log_text`."""
    log_text: bool = False
    local_only: bool = False
    """Nothing but this machine may be asked. Always on where a library holds patients' notes and does not allow it."""
    allow_remote: bool = False
    """Lets a library's notes reach other machines: once said it is written down in the library's folder. It cannot be
    said in a file or in the environment, which would allow it for libraries that nobody thought of."""
    threads: int | None = Field(None, ge=1)
    """Threads of the embedded models; all cores where not said."""

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.log_text and self.log is None:
            raise ValueError("setting log_text: there is no log for the texts: name its file with log (--log FILE)")
        files = [path for path in (self.log, self.record, self.cache.path) if path is not None]
        if len(set(files)) < len(files):
            raise ValueError("settings log, record and cache.path name one file: give each a file of its own")
        check = self.preflight
        if check.threshold is not None and check.threshold >= 1 and not (check.signal or "overlap").endswith("gap"):
            raise ValueError(
                "setting preflight.threshold: no overlap is above 1: give less, or enabled = false to read all "
                f"questions in parts (it says {check.threshold:g})"
            )
        if check.enabled and check.signal == "reranker-overlap" and self.rerank.name is None:
            raise ValueError(
                "setting preflight.signal: reranker-overlap needs a reranker: name one with rerank.name (--rerank)"
            )
        if self.strategy == "full-context" and self.beside:
            raise ValueError(
                "setting beside: full-context reads the patient's record and no literature: ask with --strategy rag or "
                "brief-context, or leave beside (--beside) out"
            )
        if self.strategy == "full-context" and self.order == "rank":
            raise ValueError(
                "setting order: full-context ranks nothing, its notes stand by time: ask with --strategy rag or "
                "brief-context, or leave order (--order rank) out"
            )
        shown = self.examples
        if shown.rerank is not None and shown.k * shown.rerank_times > MAX_RERANKED:
            raise ValueError(
                f"setting examples.rerank_times: {shown.rerank_times} times {shown.k} examples are more than the "
                f"{MAX_RERANKED:,} that are reranked: give less of one of them"
            )
        if self.local_only and self.allow_remote:
            raise ValueError("local_only (--local-only) and --allow-remote contradict each other: give one of them")
        for key, elsewhere in self.elsewhere() if self.local_only else ():
            raise ValueError(
                f"setting {key}: local_only (--local-only) is on and {elsewhere} is not this machine: name "
                "something on this machine, or turn local_only off"
            )
        return self

    def elsewhere(self) -> Iterator[tuple[str, str]]:
        """What the settings name beyond this machine: keys, dotted, and the hosts, without what is secret of them."""
        for key, value in _places(self):
            if (host := remote_host(value)) is not None:
                yield key, host

    def counted(self, patient: str | None = None) -> CountUnit:
        """Return what is counted where a question is of this patient, or of literature."""
        return self.count or ("documents" if patient is None else "passages")

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that chat models play: `reward` only where the settings name a model for it."""
        return ROLES if self.models.reward is None else (*ROLES, "reward")

    def model_for(self, role: str) -> ModelSettings:
        """The settings of the model that plays this role. A table without a name changes the writer's own settings."""
        writer: ModelSettings = self.models.writer
        own: ModelSettings | None = getattr(self.models, role, None)
        if own is None or "name" in own.model_fields_set:
            return own or writer
        return writer.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})


def _places(table: BaseModel, prefix: str = "") -> Iterator[tuple[str, str | Path]]:
    """Every value that may name a place, by its dotted key: all texts but those of a scope, which name documents."""
    for name in type(table).model_fields:
        value = getattr(table, name)
        if isinstance(value, BaseModel) and not isinstance(value, ScopeSettings):
            yield from _places(value, f"{prefix}{name}.")
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, (str, Path)):
                yield prefix + name, each
