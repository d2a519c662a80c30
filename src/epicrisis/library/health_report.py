"""What a health check found, as values, as sentences and as lines for a screen. Does not know how it was found.

Names documents and passages by their ids and holds none of their text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from epicrisis.library.checksums import Damage
from epicrisis.library.consistency import LibraryInfo
from epicrisis.printable import printable

MAX_LISTED = 5
"""Ids that a finding names; the others are counted."""
_SAID = 3
_REPAIR = "run `epicrisis library repair`"
_AGAIN = "delete their documents (`epicrisis library delete`) and add the files again"
_REFILL = f"{_REPAIR}, then add the files again"
_RESTORE = "copy the folder again from a backup, or make the library anew"
_SUPERSEDED = (
    "damaged files are of earlier versions, which nothing reads: ten minutes after the last change "
    "`epicrisis library optimize` removes them"
)
MARKS_DUE = (
    "a stop came before all articles were marked that a list or a notice calls retracted, doubted or corrected, and "
    "these are read unmarked: run `epicrisis library optimize`"
)
"""The next writer marks them, whatever it came for."""
_NOT_RECORDED = (
    "the library was made by an earlier version and has no checksums of its data files, so that changed bits go "
    "unnoticed: `epicrisis library optimize` records them"
)
_LABEL = 12


@dataclass(frozen=True, slots=True)
class Finding:
    """How many, and the ids of the first ones met."""

    count: int = 0
    first: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pairs:
    """How many passages are like an earlier one of another document, and the first of them: (earlier, later)."""

    count: int = 0
    first: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """What the table holds: documents, told from their first passages, and `passages`.

    `by_decade` is keyed by `1990s`; `deleted` are those that their source took back and that are remembered.
    """

    documents: int
    passages: int
    by_source: Mapping[str, int]
    by_decade: Mapping[str, int]
    first_year: int | None
    last_year: int | None
    undated: Finding
    retracted: Finding
    deleted: int


@dataclass(frozen=True, slots=True)
class Texts:
    """Passages whose text is empty or has markup left in it, and those that repeat one of another document.

    `repeated`: title and text are equal. `near` (see `corpus.quality.NearDuplicates`), these included, are of the
    `compared` passages, a sample where these are not all; `crowded` is how often one met too many to compare with.
    """

    empty: Finding
    markup: Finding
    repeated: Pairs
    near: Pairs
    compared: int
    crowded: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Where passages are not as they must be. `broken` are documents whose ordinals do not run from 0 without a gap,
    all of one version; `no_vector` have one of zeros or of what is no number; `odd_vector` one whose length is far from
    the others'.
    """

    wrong_ids: Finding
    repeated_ids: Finding
    broken: Finding
    offsets: Finding
    no_vector: Finding
    odd_vector: Finding


@dataclass(frozen=True, slots=True)
class IndexAgreement:
    """Where the passages disagree with the word index (passages) and with the journal (documents).

    Another version of the content counts as another one. `compared` False: a writer was at work or was killed, and
    nothing can be said.
    """

    compared: bool
    not_in_words: Finding = Finding()
    only_in_words: Finding = Finding()
    not_in_journal: Finding = Finding()
    only_in_journal: Finding = Finding()


@dataclass(frozen=True, slots=True)
class HealthReport:
    """`problems` are sentences with their cure, none for a library that is well; `notices` what a reader should know.

    `library` has the encoder, the splitter, the software, the index and the source files.
    """

    library: LibraryInfo
    contents: Contents
    texts: Texts
    rows: Rows
    agreement: IndexAgreement
    files: Damage
    find_problems: tuple[str, ...]
    find_notices: tuple[str, ...]


# -- sentences ------------------------------------------------------------------------------------------------------


def find_problems(library: LibraryInfo, rows: Rows, agreement: IndexAgreement, files: Damage) -> tuple[str, ...]:
    """What is wrong, each with its cure."""
    found = (
        (rows.wrong_ids, "passages are not called by their document and ordinal", _AGAIN),
        (rows.repeated_ids, "passages have the id of another one", _AGAIN),
        (rows.broken, "documents lack passages, or hold some of another version", _AGAIN),
        (rows.offsets, "passages have a start and an end that are not their text's", _AGAIN),
        (rows.no_vector, "passages have no usable vector and are never found by it", _AGAIN),
        (agreement.not_in_words, "passages are not in the word index as they are now", _REPAIR),
        (agreement.only_in_words, "entries of the word index are of no passage there is", _REPAIR),
        (agreement.not_in_journal, "documents have passages and were not acknowledged as they are", _REPAIR),
        (agreement.only_in_journal, "documents were acknowledged and have not the passages they had", _REFILL),
    )
    told = [f"{_many(finding, what)}: {cure}" for finding, what, cure in found if finding.count]
    return (*library.problems, *describe_damaged_files(files), *told)


def describe_damaged_files(files: Damage) -> tuple[str, ...]:
    """Return a sentence for each kind of damaged data files, with its cure."""
    index = tuple(name for name in files.changed if "/_indices/" in name)
    other = tuple(name for name in files.changed if name not in index)
    kinds = (
        (other, "data files changed after they were written (a damaged disk?)", _RESTORE),
        (index, "files of the indexes changed after they were written", "run `epicrisis library optimize --rebuild`"),
        (files.missing, "data files are missing", _RESTORE),
        (files.words, "files of the word index are damaged", _REPAIR),
    )
    return tuple(f"{_many(Finding(len(names), names), what)}: {cure}" for names, what, cure in kinds if names)


def find_notices(
    library: LibraryInfo, contents: Contents, texts: Texts, rows: Rows, agreement: IndexAgreement, files: Damage
) -> tuple[str, ...]:
    """What is not wrong and still worth knowing."""
    told = tuple(_notices(library, contents, texts, rows, agreement))
    if files.superseded:
        told = (*told, _many(Finding(len(files.superseded), files.superseded), _SUPERSEDED))
    return told if files.recorded else (*told, _NOT_RECORDED)


def _notices(
    library: LibraryInfo, contents: Contents, texts: Texts, rows: Rows, agreement: IndexAgreement
) -> Iterator[str]:
    if not agreement.compared:
        yield (
            "a writer is at work, or was stopped: whether the parts agree was not looked at; check again when it has "
            "ended, or after the next `epicrisis library add`"
        )
    of = f"of {contents.passages:,} passages"
    for finding, what in (
        (texts.empty, f"{of} have no text, or only say that there is none"),
        (texts.markup, f"{of} have markup left in them"),
        (rows.odd_vector, f"{of} have a vector much longer or shorter than the others"),
        (contents.undated, f"of {contents.documents:,} documents have no date: searches as of a date do not see them"),
        (contents.retracted, f"of {contents.documents:,} documents are retracted: left out, unless --with retracted"),
    ):
        if finding.count:
            yield _many(finding, what)
    if texts.repeated.count:
        yield f"{texts.repeated.count:,} {of} repeat one of another document word for word{_shown(texts.repeated)}"
    if texts.compared < contents.passages:
        looked = f"of {texts.compared:,} passages looked at (a sample, alike ones together)"
        yield f"{looked}, {texts.near.count:,} repeat one of another document nearly or wholly{_shown(texts.near)}"
    elif texts.near.count:
        yield f"{texts.near.count:,} {of} repeat one of another document nearly or wholly{_shown(texts.near)}"
    if texts.crowded:
        yield f"{texts.crowded:,} times a passage was like too many others to compare it with all: there may be more"
    if library.index is not None and not library.index.good:
        yield (
            f"the index finds {_recall(library)}, less than the {library.index.asked:.2f} asked: searches scan all "
            "passages instead; run `epicrisis library optimize`"
        )
    elif library.unindexed:
        yield f"{library.unindexed:,} passages are not in the index and are scanned: run `epicrisis library optimize`"


def _many(finding: Finding, what: str) -> str:
    return f"{finding.count:,} {what}{_listed(finding.count, finding.first)}"


def _shown(pairs: Pairs) -> str:
    return _listed(pairs.count, [f"{earlier} ~ {later}" for earlier, later in pairs.first])


def _listed(count: int, names: Sequence[str]) -> str:
    """In brackets, with the space before them; empty for none."""
    said = ", ".join(map(printable, names[:_SAID]))
    return f" ({said}{', ...' if count > _SAID else ''})" if names else ""


def _recall(library: LibraryInfo) -> str:
    assert library.index is not None
    tenth = library.index.filtered_recall
    return f"{library.index.recall:.3f} of the nearest 16" + ("" if tenth is None else f" ({tenth:.3f} in a tenth)")


# -- lines ----------------------------------------------------------------------------------------------------------


def format_report(report: HealthReport) -> list[str]:
    """The report for a screen: what there is, line by line, then what to know, then what is wrong."""
    contents, made = report.contents, report.library.manifest
    rows = [
        ("holds", f"{contents.documents:,} documents, {contents.passages:,} passages"),
        ("from", _counts(contents.by_source)),
        ("published", _years(contents)),
        ("retracted", f"{contents.retracted.count:,}; {contents.deleted:,} deleted ones are remembered"),
        ("encoder", f"{made.encoder_name}, {made.dimensions} dimensions ({made.encoder_fingerprint})"),
        ("cut by", _splitter(report.library)),
        ("made", f"{made.created} by {', '.join(f'{name} {number}' for name, number in made.software.items())}"),
        ("search", _index(report.library)),
        ("checksums", _checksums(report.files)),
        *(("file" if place == 0 else "", line) for place, line in enumerate(_sources(report.library))),
    ]
    told = [f"{label:<{_LABEL}}{value}" for label, value in rows]
    told += [f"{'note' if place == 0 else '':<{_LABEL}}{notice}" for place, notice in enumerate(report.notices)]
    told += [f"{'WRONG':<{_LABEL}}{problem}" for problem in report.problems]
    return told if report.problems else [*told, f"{'sound':<{_LABEL}}no problem found"]


def _counts(by_name: Mapping[str, int]) -> str:
    most = sorted(by_name.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{printable(name) or '(no source named)'} {count:,}" for name, count in most[:MAX_LISTED]]
    return ", ".join(told) + (f" and {len(most) - MAX_LISTED:,} more" if len(most) > MAX_LISTED else "")


def _years(contents: Contents) -> str:
    undated = f"{contents.undated.count:,} without a date"
    if contents.first_year is None:
        return undated
    decades = ", ".join(f"{decade} {count:,}" for decade, count in contents.by_decade.items())
    return f"{contents.first_year} to {contents.last_year} ({decades}), {undated}"


def _splitter(library: LibraryInfo) -> str:
    made = library.manifest
    return f"{made.splitter}, up to {made.max_tokens} tokens" + (
        f", {made.overlap} shared by neighbours" if made.splitter == "tokens" else ""
    )


def _index(library: LibraryInfo) -> str:
    if library.index is None:
        return "exact, no index"
    exact = "exact, the index is not used: it finds" if library.exact else "by an index that finds"
    return f"{exact} {_recall(library)}, {library.unindexed:,} passages not in it"


def _checksums(files: Damage) -> str:
    """Return how many data files were compared with their checksums."""
    if not files.recorded:
        return "none recorded"
    return f"{files.files:,} data files compared, {len(files.changed) + len(files.missing):,} not as they were written"


def _sources(library: LibraryInfo) -> list[str]:
    told = [
        f"{printable(each.name)}, {each.bytes:,} bytes, sha256 {each.sha256}, added {each.added}"
        for each in library.sources[:MAX_LISTED]
    ]
    if len(library.sources) > MAX_LISTED:
        told.append(
            f"and {len(library.sources) - MAX_LISTED:,} more that were added whole (all of them in the JSON form)"
        )
    return told or ["none was added whole"]
