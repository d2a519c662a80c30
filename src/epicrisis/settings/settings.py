"""Typed settings: every table and key, with default, unit and meaning. `configuration` reads them.

Settings contain no API key, only its place. Secrets in addresses (user, password) appear neither in dumps and
representations of settings nor in messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, model_validator

from epicrisis.core.dates import first_day, last_day
from epicrisis.core.strategy_names import StrategyName
from epicrisis.core.study_types import StudyType
from epicrisis.core.types import (
    AbsencePolicy,
    ChatCheck,
    CitingMode,
    CountUnit,
    EvidenceOrder,
    EvidenceUnit,
    ExtractionTarget,
    LongQuestionPolicy,
    PreferenceMode,
    RouteTarget,
    SearchMode,
    SupportCheck,
    UnsupportedPolicy,
    UnverifiedPolicy,
)
from epicrisis.settings.tables import (
    CacheSettings,
    Date,
    DefenceSettings,
    EnergySettings,
    LibraryFolder,
    LiteratureSettings,
    LocalPath,
    ModelName,
    NameOrPath,
    NameOrUrl,
    PlanSettings,
    PreflightSettings,
    RefineSettings,
    VariableName,
    VoteSettings,
)
from epicrisis.settings.tables import SettingsTable as _Table
from epicrisis.settings.tables import define_key as _key
from epicrisis.system.local_only import remote_host, split_addresses

ROLES = ("writer", "map", "reduce")
API_KEY_VARIABLE = "EPICRISIS_API_KEY"
"""Prefix of the environment variables with API keys (`EPICRISIS_API_KEY_MAP`)."""
MAX_RERANKED = 1000


class Price(_Table):
    """The price of a model."""

    input: float = _key(..., "Price of prompt tokens.", "US$ per million", ge=0)
    output: float = _key(..., "Price of completion tokens.", "US$ per million", ge=0)
    cached: float | None = _key(
        None, "Price of prompt tokens from the endpoint's prefix cache. Default: as input.", "US$ per million", ge=0
    )


class ModelSettings(_Table):
    """One chat model."""

    name: ModelName = _key(
        "smollm2-135m",
        "Model: a catalogue name, a .gguf file, ollama:MODEL (or lmstudio, vllm, llamacpp, openai, anthropic), or the "
        "URL of an OpenAI-compatible endpoint (http://127.0.0.1:8000/v1#model-name). Several endpoints of one model: "
        "URL,URL#model-name.",
    )
    # OPENAI_API_KEY only for its own host (`choose_key_variable`): a key for one service must not go to any endpoint.
    api_key_env: VariableName = _key(API_KEY_VARIABLE, "Environment variable with the endpoint's API key.")
    api_key_file: LocalPath | None = _key(
        None, ("File that contains only the API key. Takes precedence over the variable."), "path"
    )
    context_tokens: int | None = _key(
        None,
        "Context window of an endpoint that does not report it, or of an embedded model.",
        "tokens",
        ge=256,
    )
    timeout_seconds: float = _key(600.0, "Longest wait for one call.", "seconds", gt=0)
    temperature: float = _key(0.0, "Sampling temperature.", ge=0, le=2)
    top_p: float = _key(1.0, "Nucleus sampling: share of probability to sample from.", gt=0, le=1)
    concurrency: int = _key(
        8, "Most concurrent calls, for each endpoint. An embedded model takes one at a time.", "calls", ge=1
    )
    requests_per_minute: float | None = _key(None, "Rate limit.", "requests per minute", gt=0)
    tokens_per_minute: float | None = _key(
        None, "Rate limit for prompt and completion together.", "tokens per minute", gt=0
    )
    tries: int = _key(
        5, "Attempts per call after temporary errors. Waiting after a 429 does not count.", "attempts", ge=1
    )
    retry_seconds: float = _key(120.0, "Longest time for all attempts of one call.", "seconds", gt=0)
    max_reasoning_tokens: int = _key(
        0, "Tokens for reasoning, in addition to the answer. 0: not a reasoning model.", "tokens", ge=0
    )
    json_schema: bool | None = _key(None, "Whether the endpoint enforces a JSON schema. Default: detected.")
    option_logprobs: bool | None = _key(
        None, "Whether the endpoint returns token log-probabilities. Default: detected."
    )
    price: Price | None = _key(
        None, "Price of the model. Default: from the installed price list; a model not listed has an unknown price."
    )
    extra: dict[str, Any] = _key(
        {}, 'Parameters of this endpoint, sent with every call ({reasoning_effort = "low"}).', repr=False
    )

    @property
    def is_endpoint(self) -> bool:
        """Whether the model is reached over a network, even on this machine. False: it runs in this process."""
        return "://" in self.name

    @property
    def endpoints(self) -> tuple[ModelSettings, ...]:
        """The settings of each endpoint of a pool, or these settings."""
        return tuple(self.model_copy(update={"name": address}) for address in split_addresses(self.name))

    @property
    def most_calls(self) -> int:
        """The most calls in flight at all endpoints."""
        return self.concurrency * len(split_addresses(self.name))


class ModelsByRole(_Table):
    """One chat model per role. A role without a model name of its own uses the writer."""

    writer: ModelSettings = _key(ModelSettings(), "Writes the answers.")
    map: ModelSettings | None = _key(None, "Reads the partitions of the evidence.")
    reduce: ModelSettings | None = _key(None, "Combines the findings.")
    judge: ModelSettings | None = _key(None, "Judges the answers of finished runs.")
    reward: ModelSettings | None = _key(None, "Scores drafts if refine.reward_model is not set.")


class RerankSettings(_Table):
    """A reranker for the best passages."""

    name: NameOrUrl | None = _key(None, "Reranker: a catalogue name, a folder, or the URL of a /v1/rerank endpoint.")
    depth: int = _key(64, "How many passages to rerank.", "passages", ge=1, le=MAX_RERANKED)
    api_key_env: VariableName = _key(API_KEY_VARIABLE, "Environment variable with the reranker's API key.")


class ExampleSettings(_Table):
    """Solved questions in the prompt (`epicrisis examples build`)."""

    library: LibraryFolder | None = _key(None, "Library of solved questions.", "path")
    encoder: NameOrPath | None = _key(None, "Encoder of a new library of solved questions. Default: minilm.")
    k: int = _key(5, "Solved questions per prompt.", "examples", ge=0, le=100)
    choose: Literal["nearest", "random", "fixed"] = _key(
        "nearest",
        "Selection: nearest, random for each question by the seed, or fixed for all. The last two are controls.",
    )
    rerank: NameOrUrl | None = _key(None, "Reranker for the nearest examples (errata P7: made for query and article).")
    rerank_times: int = _key(3, "Examples to rerank, as a multiple of k.", "times k", ge=1, le=100)
    leak_similarity: float = _key(
        0.8,
        "An example with text this similar to the question is excluded as the question itself.",
        "Jaccard similarity",
        gt=0,
        le=1,
    )


class BudgetSettings(_Table):
    """Limits of a run, retries included. It stops before it exceeds one, and keeps its results."""

    tokens: int | None = _key(None, "Limit for prompt and completion together.", "tokens", ge=1)
    usd: float | None = _key(None, "Limit of the cost.", "US$", gt=0)
    minutes: float | None = _key(None, "Limit of the time.", "minutes", gt=0)


class ScopeSettings(_Table):
    """Limits of what a search may return, in addition to the patient; see `epicrisis.core.types.Scope`."""

    as_of: Date | None = _key(None, "Hide documents after this date, and undated ones.", "date")
    since: Date | None = _key(None, "Hide documents before this date, and undated ones.", "date")
    types: tuple[str, ...] = _key((), "Only these publication types. Default: all.")
    journals: tuple[str, ...] = _key((), "Only these journals. Default: all.")
    without: tuple[Literal["retracted"], ...] = _key(
        ("retracted",), "Hide retracted articles, whenever retracted, and retraction notices."
    )
    include: tuple[Literal["retracted"], ...] = _key(
        (), "Read these documents all the same, with a mark. Wins over without."
    )
    hide: tuple[str, ...] = _key((), "Hide the documents with these ids.")
    hide_gold: bool = _key(False, "Hide the gold documents of each question from it (leak guard, errata B15).")

    @model_validator(mode="after")
    def _check_dates(self) -> ScopeSettings:
        if self.since and self.as_of and first_day(self.since) > last_day(self.as_of):
            raise ValueError(
                f"since {self.since} is later than as_of {self.as_of}, which hides every document: change one of them"
            )
        return self


class AnswerOptions(_Table):
    """Everything that changes an answer, in the settings and for a single question; a run records all of it."""

    encoder: NameOrPath | None = _key(
        None, "Encoder: a name or a folder. Default: that of the library, and minilm for a new library."
    )
    by: SearchMode = _key("hybrid", "Search by vectors (dense), words (bm25) or both (hybrid).")
    strategy: StrategyName = _key("brief-context", "How to answer. `ask` without a named chat model: evidence.")
    k: int = _key(16, "How much evidence to read.", "documents or passages, see count", ge=1, le=1000)
    count: CountUnit | None = _key(
        None, "Unit of k, partition and the preflight check. Default: documents, and passages for a patient record."
    )
    sentences: int = _key(8, "Sentences that evidence and focused select.", "sentences", ge=1, le=200)
    neighbours: int = _key(
        1, "Sentences that focused adds before and after each selected one.", "sentences", ge=0, le=20
    )
    focus_tokens: int | None = _key(
        None,
        "Limit for the sentences that focused reads, by the writer's tokenizer, in place of a number of sentences.",
        "tokens",
        ge=1,
    )
    adaptive_k: bool = _key(
        False, "rag and focused read only what ranks before the largest gap in the scores, at most k."
    )
    rotations: int = _key(
        1,
        "Prompts of rag and focused, each with the documents rotated further. Their answers vote.",
        "prompts",
        ge=1,
        le=100,
    )
    route: RouteTarget = _key(
        "off",
        "Where rag and focused send a question that the documents in one prompt do not answer: brief-context, "
        "full-context, or off.",
    )
    partition: int = _key(4, "Evidence per map call.", "documents or passages, see count", ge=1)
    rrf_k: int = _key(60, "Constant of reciprocal rank fusion.", ge=1)
    preflight: PreflightSettings = PreflightSettings()
    long_questions: LongQuestionPolicy = _key("segments", "How to treat a question longer than the encoder's window.")
    rerank: RerankSettings = RerankSettings()
    fusion_times: int | None = _key(
        None,
        "Passages of each ranking that enter a fusion (the EHR study: 2). Default: 100 passages, or k if more.",
        "times k",
        ge=1,
    )
    other_names: bool = _key(
        True,
        "Search again with other names, if few of the first passages have those of the question: spellings, drug "
        "brands, lay words, abbreviations.",
    )
    keep_first: bool = _key(True, "Keep the first passage of each search among the first of a hybrid ranking.")
    unit: EvidenceUnit = _key(
        "chunk",
        "What to read of a record: passages (chunk), or the k whole notes of the best passages (note).",
    )
    note_tokens: int | None = _key(
        None,
        "Limit for whole notes together, by the writer's tokenizer. Default: the room in its window.",
        "tokens",
        ge=1,
    )
    order: EvidenceOrder | None = _key(
        None, "Order of the evidence. Default: time for a question about a patient, else rank."
    )
    timeline: bool = _key(
        True, "Restrict notes by time expressions of a question (first, latest, during the second stay)."
    )
    facts: bool = _key(True, "Compute answers about structured entries of a record.")
    extract: ExtractionTarget = _key("span", "What answers an extractive question: a sentence or a span.")
    citing: CitingMode = _key(
        "numbers",
        "How a reply names its evidence: numbers (of sentences) or quotes (copied words).",
    )
    map_confidence: bool = _key(
        False,
        "Ask map replies of brief-context for a rationale and a confidence (0 to 5), which the reduce call weighs.",
    )
    describe_sources: bool = _key(
        True,
        "Tell the chat model the study type of each source, if known.",
    )
    prefer: tuple[StudyType, ...] = _key(
        (),
        "Study types to move forward in the ranking, such as systematic-review and randomised-trial. docs/answers.md "
        "lists all.",
    )
    prefer_mode: PreferenceMode = _key(
        "first", "Move the preferred study types forward (first), or leave out all others (only)."
    )
    unverified: UnverifiedPolicy = _key(
        "abstain",
        "What to do with an answer from documents without a verified quotation: abstain and show it, or keep it as an "
        "answer.",
    )
    not_in_library: AbsencePolicy = _key(
        "abstain",
        "What to do with a question without options that no document seems to answer: abstain before any model is "
        "called, or ask all the same.",
    )
    defence: DefenceSettings = DefenceSettings()
    check: SupportCheck = _key(
        "rules",
        "Check of an answer's claims against the sentences they cite: off, rules (directions, numbers, names), nli "
        "(check_model), or a chat model (models.judge, else the writer): model for any, med-v1 or minicheck for these.",
    )
    check_model: NameOrPath | None = _key(None, "Entailment model of check = nli: a catalogue name or a folder.")
    unsupported: UnsupportedPolicy = _key(
        "withhold", "Claims that their sentences contradict or do not name: withhold, with the reason, or mark."
    )
    scope: ScopeSettings = ScopeSettings()
    votes: VoteSettings = VoteSettings()
    examples: ExampleSettings = ExampleSettings()
    refine: RefineSettings = RefineSettings()
    seed: int = _key(0, "Seed of all random choices.")
    deidentify: float | None = _key(
        None,
        "Replace identifiers in prompts by surrogates, and restore them in replies, if the measured recall of the "
        "worst kind is at least this (extra `deidentify`).",
        gt=0,
        lt=1,
    )

    def count_unit(self, patient: str | None = None) -> CountUnit:
        """Return the unit of `k` for a question about this patient, or about literature."""
        return self.count or ("documents" if patient is None else "passages")


class Settings(AnswerOptions):
    """All settings of a pipeline: the options of answers, models, files and limits."""

    preset: str | None = _key(None, "Named group of settings below all others: cr, cr-benchmark, ehr, ehr-qwq-32b, ...")
    home: LocalPath = _key(Path("~/.local/share/epicrisis"), "Folder of downloaded models.", "path")
    store: str | None = _key(None, "Store of passages of an installed package (docs/python.md). Default: the library.")
    models: ModelsByRole = ModelsByRole()
    fuse: tuple[LibraryFolder, ...] = _key(
        (), "Further libraries of the same passages with other encoders. Their dense rankings are fused.", "paths"
    )
    beside: tuple[LibraryFolder, ...] = _key(
        (), "Libraries of literature to search together with the first. Their patient notes are ignored.", "paths"
    )
    deadline_seconds: float | None = _key(None, "Longest time for one question.", "seconds", gt=0)
    questions_at_once: int | None = _key(
        None,
        "Concurrent questions of a run. Default: the writer's concurrency, times its endpoints; one if embedded.",
        "questions",
        ge=1,
    )
    cache: CacheSettings = CacheSettings()
    budget: BudgetSettings = BudgetSettings()
    plan: PlanSettings = PlanSettings()
    energy: EnergySettings = EnergySettings()
    literature: LiteratureSettings = LiteratureSettings()
    calibration: LocalPath | None = _key(
        None, "File of `epicrisis calibrate confidence`. Answers then show the calibrated confidence.", "path"
    )
    record: LocalPath | None = _key(
        None, "JSONL file for every prompt and reply. It contains the text of the documents in them.", "path"
    )
    log: LocalPath | None = _key(None, "Log file with ids and counts, without text unless log_text is on.", "path")
    log_text: bool = _key(False, "Write prompts and replies to the log.")
    local_only: bool = _key(
        False, "Contact no other machine. Always on for a library of patient notes, unless remote use was allowed."
    )
    allow_remote: bool = _key(
        False,
        "Let the notes of a library reach other machines. Recorded in the library's folder. Only as a flag: in a file "
        "or the environment it would apply to every library.",
    )
    break_glass: str | None = _key(None, "Why you read this record, for the access log. Only as a flag.", "text")
    threads: int | None = _key(None, "Threads of embedded models. Default: all cores.", "threads", ge=1)

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.log_text and self.log is None:
            raise ValueError("setting log_text: there is no log for the texts: name its file with log")
        files = list(filter(None, (self.log, self.record, self.cache.path)))
        if len(set(files)) < len(files):
            raise ValueError("settings log, record and cache.path are the same file: give each its own")
        self._check_preflight()
        self._check_defence()
        if self.strategy == "full-context" and self.beside:
            raise ValueError(
                "setting beside: full-context reads the patient record and no literature: use --strategy rag or "
                "brief-context, or leave out beside"
            )
        if self.route == "full-context" and self.beside:
            raise ValueError(
                "setting route: full-context reads the patient record and no literature: use route=brief-context, or "
                "leave out beside"
            )
        if self.strategy == "full-context" and self.order == "rank":
            raise ValueError(
                "setting order: full-context has no ranking, its notes are in order of time: use --strategy rag or "
                "brief-context, or leave out order"
            )
        examples = self.examples
        if examples.rerank is not None and examples.k * examples.rerank_times > MAX_RERANKED:
            raise ValueError(
                f"setting examples.rerank_times: {examples.rerank_times} times {examples.k} examples exceed the limit "
                f"of {MAX_RERANKED:,} for reranking: reduce one of them"
            )
        if self.check == "nli" and self.check_model is None:
            raise ValueError(
                "setting check: nli needs an entailment model: name one with check_model (a catalogue name or a "
                "folder), or use check = rules"
            )
        if self.local_only and self.allow_remote:
            raise ValueError("local_only (--local-only) and --allow-remote contradict each other: give one of them")
        for key, host in self.remote_hosts() if self.local_only else ():
            raise ValueError(
                f"setting {key}: local_only (--local-only) is on and {host} is not this machine: name something on "
                "this machine, or turn local_only off"
            )
        return self

    def _check_preflight(self) -> None:
        check = self.preflight
        if check.threshold is not None and check.threshold >= 1 and not (check.signal or "overlap").endswith("gap"):
            raise ValueError(
                "setting preflight.threshold: no overlap is above 1: give a lower one, or enabled = false to read all "
                f"questions in partitions (got {check.threshold:g})"
            )
        if check.enabled and check.signal == "reranker-overlap" and self.rerank.name is None:
            raise ValueError("setting preflight.signal: reranker-overlap needs a reranker: choose one with rerank.name")

    def _check_defence(self) -> None:
        if self.deidentify is not None and self.defence.datamarking:
            raise ValueError(
                "setting deidentify: names are not recognised between the marks of defence.datamarking: leave out one "
                "of both"
            )
        if self.defence.isolated_votes and self.strategy != "brief-context":
            raise ValueError(
                f"setting defence.isolated_votes: {self.strategy} does not read documents one by one: use --strategy "
                "brief-context, or leave it out"
            )
        if self.defence.isolated_votes and self.map_confidence:
            raise ValueError(
                "setting map_confidence: isolated votes have no reduce call to weigh confidences: leave out one of both"
            )
        if self.defence.structured_findings and (self.strategy, self.citing) != ("brief-context", "numbers"):
            raise ValueError(
                "setting defence.structured_findings: only findings with numbered sentences have this form: use "
                "--strategy brief-context --setting citing=numbers, or leave it out"
            )

    def remote_hosts(self) -> Iterator[tuple[str, str]]:
        """Yield the dotted key and the host, without secrets, of every setting that names another machine."""
        for key, value in _list_places(self):
            if (host := remote_host(value)) is not None:
                yield key, host

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of chat models; `reward` and, for the check of claims, `judge` only if they have a model."""
        reward = () if self.models.reward is None else ("reward",)
        judge = ("judge",) if self.check in get_args(ChatCheck) and self.models.judge is not None else ()
        return (*ROLES, *reward, *judge)

    def model_for(self, role: str) -> ModelSettings:
        """Return the settings of the model for this role. A table without a name changes the writer's settings."""
        writer: ModelSettings = self.models.writer
        model: ModelSettings | None = getattr(self.models, role, None)
        if model is None or "name" in model.model_fields_set:
            return model or writer
        return writer.model_copy(update={key: getattr(model, key) for key in model.model_fields_set})


def _list_places(table: BaseModel, prefix: str = "") -> Iterator[tuple[str, str | PurePath]]:
    """Yield every value that may name a place, with its dotted key. Texts of a scope name documents, not places."""
    for name in type(table).model_fields:
        value = getattr(table, name)
        if isinstance(value, BaseModel) and not isinstance(value, (ScopeSettings, LiteratureSettings)):
            yield from _list_places(value, f"{prefix}{name}.")
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, str):
                yield from ((f"{prefix}{name}", address) for address in split_addresses(item))
            elif isinstance(item, PurePath):
                yield f"{prefix}{name}", item
