"""The report of a health check, as values, sentences and lines of text.

The report names documents and passages by their ids and quotes none of their text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from epicrisis.core.printable import agree, count_noun, printable
from epicrisis.library.core.library_parts import LibraryInfo
from epicrisis.library.engines.checksums import Damage
from epicrisis.library.engines.index_recall import IndexReport

MAX_LISTED = 5
"""Maximum number of ids in a finding."""
_MAX_IN_SENTENCE = 3
_REPAIR = "run `epicrisis library repair`"
_AGAIN = "delete their documents (`epicrisis library delete`) and add the files again"
_REFILL = f"{_REPAIR}, then add the files again"
_RESTORE = "restore the folder from a backup, or create the library again"
_SUPERSEDED = (
    "of earlier versions, no longer in use: ten minutes after the last change `epicrisis library optimize` cleans up"
)
MARKS_DUE = (
    "an addition stopped before it marked all articles that a list or a notice calls retracted, doubted or corrected, "
    "and answers may use them without their marks: run `epicrisis library optimize`"
)
"""Notice about due marks. Any writer sets them."""
_LABEL_WIDTH = 12


@dataclass(frozen=True, slots=True)
class Finding:
    """A number of documents or passages, and the first ids."""

    count: int = 0
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pairs:
    """The number of passages similar to an earlier one of another document, and the first pairs (earlier, later)."""

    count: int = 0
    first: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The content of the passage table."""

    documents: int
    passages: int
    by_source: Mapping[str, int]
    by_decade: Mapping[str, int]
    """Documents by decade, such as `1990s`."""
    first_year: int | None
    last_year: int | None
    undated: Finding
    retracted: Finding
    deleted: int
    """Recorded deletions of documents by their source."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Passages with empty, unclean or repeated text."""

    empty: Finding
    markup: Finding
    repeated: Pairs
    """Passages with the title and text of another document's passage."""
    near: Pairs
    """Near duplicates (see `corpus.text_quality.NearDuplicates`), including the repeated passages."""
    compared: int
    """Passages examined for near duplicates. This may be a sample."""
    crowded: int
    """Passages with too many candidates to compare them all."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Invalid passages, by kind."""

    wrong_ids: Finding
    repeated_ids: Finding
    broken: Finding
    """Documents with missing ordinals, or with passages of several versions."""
    offsets: Finding
    no_vector: Finding
    """Passages with a zero vector, or with a number that is not finite."""
    odd_vector: Finding
    """Passages with an unusually long or short vector."""


@dataclass(frozen=True, slots=True)
class IndexAgreement:
    """Differences between the passages and the word index (passages) or the journal (documents), versions included."""

    compared: bool
    """False if a batch was open, so that the parts could not be compared."""
    not_in_words: Finding = Finding()
    only_in_words: Finding = Finding()
    not_in_journal: Finding = Finding()
    only_in_journal: Finding = Finding()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """The result of a health check."""

    library: LibraryInfo
    contents: Contents
    texts: Texts
    rows: Rows
    agreement: IndexAgreement
    files: Damage
    problems: tuple[str, ...]
    """Sentences that name each problem and its cure. Empty for a sound library."""
    notices: tuple[str, ...]
    """Sentences about other matters that readers should know."""


def find_problems(library: LibraryInfo, rows: Rows, agreement: IndexAgreement, files: Damage) -> tuple[str, ...]:
    """Return a sentence with its cure for each problem."""
    problems = [*library.problems, *describe_damaged_files(files)]
    for finding, noun, fault, cure in (
        (rows.wrong_ids, "passage", "with an id that does not match document and ordinal", _AGAIN),
        (rows.repeated_ids, "passage", "with the id of another passage", _AGAIN),
        (rows.broken, "document", "without all passages, or with some of another version", _AGAIN),
        (rows.offsets, "passage", "with a start and end that do not match the text", _AGAIN),
        (rows.no_vector, "passage", "without a usable vector, which vector search cannot find", _AGAIN),
        (agreement.not_in_words, "passage", "missing or outdated in the word index", _REPAIR),
        (agreement.only_in_words, "row", "of the word index without a current passage", _REPAIR),
        (agreement.not_in_journal, "document", "with passages that were not acknowledged", _REPAIR),
        (agreement.only_in_journal, "document", "acknowledged, with passages lost since", _REFILL),
    ):
        if finding.count:
            problems.append(f"{_describe(finding, noun, fault)}: {cure}")
    return tuple(problems)


def describe_damaged_files(files: Damage) -> tuple[str, ...]:
    """Return a sentence with its cure for each kind of damaged data files."""
    index_files = tuple(name for name in files.changed if "/_indices/" in name)
    data_files = tuple(name for name in files.changed if name not in index_files)
    sentences = []
    for names, noun, fault, cure in (
        (data_files, "data file", "changed after the writing (a damaged disk?)", _RESTORE),
        (index_files, "index file", "changed after the writing", "run `epicrisis library optimize --rebuild`"),
        (files.missing, "data file", "missing", _RESTORE),
        (files.words, "damaged file", "of the word index", _REPAIR),
    ):
        if names:
            sentences.append(f"{_describe(Finding(len(names), names), noun, fault)}: {cure}")
    return tuple(sentences)


def find_notices(
    library: LibraryInfo, contents: Contents, texts: Texts, rows: Rows, agreement: IndexAgreement, files: Damage
) -> Iterator[str]:
    """Yield sentences about matters that are not problems but worth knowing."""
    if not agreement.compared:
        yield (
            "a writer is at work, or was stopped, so the parts of the library were not compared: check again after it "
            "has ended, or after the next `epicrisis library add`"
        )
    passages = f"of {count_noun(contents.passages, 'passage')}"
    documents = f"of {count_noun(contents.documents, 'document')}"
    for finding, total, fact in (
        (texts.empty, passages, "without text, or with a remark that it is missing"),
        (texts.markup, passages, "with markup"),
        (rows.odd_vector, passages, "with a vector much longer or shorter than the others"),
        (contents.undated, documents, "without a date, which searches as of a date do not find"),
        (contents.retracted, documents, "retracted, which searches skip without the setting scope.include=retracted"),
    ):
        if finding.count:
            yield f"{finding.count:,} {total} {fact}{_list_examples(finding.count, finding.first)}"
    yield from _notices_of_duplicates(texts, contents.passages)
    if library.index is not None and not library.index.good:
        yield (
            f"the index finds {_format_recall(library.index)}, less than the required {library.index.asked:.2f}, so "
            f"{library.index.effect_below_recall}: run `epicrisis library optimize --rebuild`"
        )
    elif library.unindexed:
        passages = count_noun(library.unindexed, "passage")
        yield f"{passages} not in the index and scanned: run `epicrisis library optimize`"
    if files.superseded:
        yield _describe(Finding(len(files.superseded), files.superseded), "damaged file", _SUPERSEDED)


def _notices_of_duplicates(texts: Texts, passages: int) -> Iterator[str]:
    of_passages = f"of {count_noun(passages, 'passage')}"
    if texts.repeated.count:
        examples = _list_pairs(texts.repeated)
        yield f"{texts.repeated.count:,} {of_passages} with the words of one of another document{examples}"
    fact = f"with nearly or completely the words of one of another document{_list_pairs(texts.near)}"
    if texts.compared < passages:
        sample = (
            f"of {count_noun(texts.compared, 'passage')} examined (a sample, with near duplicates selected together)"
        )
        yield f"{sample}, {texts.near.count:,} {fact}"
    elif texts.near.count:
        yield f"{texts.near.count:,} {of_passages} {fact}"
    if texts.crowded:
        crowded = count_noun(texts.crowded, "passage")
        yield f"{crowded} had too many candidates to compare them all, so there may be more"


def _describe(finding: Finding, noun: str, fact: str) -> str:
    return f"{count_noun(finding.count, noun)} {fact}{_list_examples(finding.count, finding.first)}"


def _list_pairs(pairs: Pairs) -> str:
    return _list_examples(pairs.count, [f"{earlier} ~ {later}" for earlier, later in pairs.first])


def _list_examples(count: int, names: Sequence[str]) -> str:
    """Return the names in brackets after a space, or an empty text without names."""
    examples = ", ".join(map(printable, names[:_MAX_IN_SENTENCE]))
    return f" ({examples}{', ...' if count > _MAX_IN_SENTENCE else ''})" if names else ""


def _format_recall(index: IndexReport) -> str:
    filtered = "" if index.filtered_recall is None else f" ({index.filtered_recall:.3f} in a tenth)"
    return f"{index.recall:.3f} of the nearest 16{filtered}"


def format_report(report: HealthReport) -> list[str]:
    """Return the report as lines of text: the content, then the notices, then the problems."""
    contents, library, files = report.contents, report.library, report.files
    manifest = library.manifest
    software = ", ".join(f"{name} {number}" for name, number in manifest.software.items())
    published = f"{contents.undated.count:,} without a date"
    if contents.first_year is not None:
        decades = ", ".join(f"{decade} {count:,}" for decade, count in contents.by_decade.items())
        published = f"{contents.first_year} to {contents.last_year} ({decades}), {published}"
    overlap = f", {manifest.overlap} shared by neighbours" if manifest.splitter == "tokens" else ""
    search = "exact, no index"
    if library.index is not None:
        method = "exact, the index is not used: it finds" if library.exact else "by an index that finds"
        search = f"{method} {_format_recall(library.index)}, {count_noun(library.unindexed, 'passage')} not in it"
    checksums = (
        f"{count_noun(files.files, 'data file')} compared, "
        f"{len(files.changed) + len(files.missing):,} changed or missing"
    )
    ordered = sorted(contents.by_source.items(), key=lambda item: (-item[1], item[0]))
    sources = ", ".join(f"{printable(name) or '(no source named)'} {count:,}" for name, count in ordered[:MAX_LISTED])
    if len(ordered) > MAX_LISTED:
        sources += f" and {len(ordered) - MAX_LISTED:,} more"
    rows = [
        ("holds", f"{count_noun(contents.documents, 'document')}, {count_noun(contents.passages, 'passage')}"),
        ("from", sources),
        ("published", published),
        (
            "retracted",
            f"{contents.retracted.count:,}; {count_noun(contents.deleted, 'deletion')} "
            f"{agree(contents.deleted, 'is', 'are')} recorded",
        ),
        ("encoder", f"{manifest.encoder_name}, {manifest.dimensions} dimensions ({manifest.encoder_fingerprint})"),
        ("splitter", f"{manifest.splitter}, up to {count_noun(manifest.max_tokens, 'token')}{overlap}"),
        ("created", f"{manifest.created} by {software}"),
        ("search", search),
        ("checksums", checksums),
    ]
    lines = []
    for file in library.sources[:MAX_LISTED]:
        lines.append(f"{printable(file.name)}, {file.bytes:,} bytes, sha256 {file.sha256}, added {file.added}")
    if len(library.sources) > MAX_LISTED:
        remaining = len(library.sources) - MAX_LISTED
        lines.append(f"and {remaining:,} more that were added completely (--json lists all)")
    rows += _label_first("file", lines or ["none was added completely"])
    rows += _label_first("note", report.notices)
    rows += [("WRONG", problem) for problem in report.problems]
    if not report.problems:
        rows.append(("sound", "no problem found"))
    return [f"{label:<{_LABEL_WIDTH}}{value}" for label, value in rows]


def _label_first(label: str, values: Sequence[str]) -> list[tuple[str, str]]:
    """Return rows whose first one has the label."""
    return [(label if index == 0 else "", value) for index, value in enumerate(values)]
