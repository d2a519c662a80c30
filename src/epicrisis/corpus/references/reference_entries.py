"""Parse files of reference managers.

They are nbib and abstracts as text (PubMed), RIS, Web of Science, Refer, BibTeX, CSL-JSON and tables.
"""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from epicrisis.core.dates import find_publication_date
from epicrisis.corpus.articles.pubmed_record import RETRACTION_RELATIONS, parse_printed_date
from epicrisis.corpus.articles.retractions import MARK_BY_RELATION
from epicrisis.corpus.base.article_ids import find_dois
from epicrisis.corpus.base.markup import remove_markup
from epicrisis.corpus.base.retraction_wording import (
    find_doubted_title,
    find_named_title,
    find_retraction,
    merge_marks,
)
from epicrisis.corpus.base.text_quality import is_empty
from epicrisis.corpus.references.bibtex import BROKEN, decode_address, decode_latex, read_values
from epicrisis.corpus.references.pubmed_abstracts import is_pubmed_summary
from epicrisis.corpus.references.reference_tables import (
    is_reference_header,
    order_name,
    read_reference_rows,
    split_authors,
    split_header,
)
from epicrisis.corpus.references.tagged_records import PLACEHOLDERS, TaggedRecord, detect_tagged_format, read_tagged

_NUMBER = re.compile(r"\d{1,9}")
_PMID_NAMED = re.compile(r"(?:PMID:?\s{0,3}|pubmed\.ncbi\.nlm\.nih\.gov/|ncbi\.nlm\.nih\.gov/pubmed/)(\d{1,9})")
_PMCID = re.compile(r"PMC\d{1,9}")
_WORD = re.compile(r"[a-z]{3,}")
_MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}  # noqa: SIM905
_CORRECTIONS = {
    "RIN": "RetractionIn",
    "ROF": "RetractionOf",
    "PRIN": "PartialRetractionIn",
    "PROF": "PartialRetractionOf",
    "RRI": "RetractedandRepublishedIn",
    "RRF": "RetractedandRepublishedFrom",
    "ECI": "ExpressionOfConcernIn",
    "ECF": "ExpressionOfConcernFor",
    "EIN": "ErratumIn",
    "EFR": "ErratumFor",
    "CRI": "CorrectedandRepublishedIn",
    "CRF": "CorrectedandRepublishedFrom",
}
"""The tags of nbib, and the relations of PubMed's XML."""
_CROSSREF_UPDATES = {
    **dict.fromkeys(("retraction", "withdrawal", "removal"), "RetractionOf"),
    "partial_retraction": "PartialRetractionOf",
    "expression_of_concern": "ExpressionOfConcernFor",
    **dict.fromkeys(("correction", "corrigendum", "erratum"), "ErratumFor"),
}
_METADATA_BY_MARK: Mapping[str, Mapping[str, Any]] = {
    "retracted": {"retracted": True},
    "expression-of-concern": {"corrections": [{"type": "ExpressionOfConcernIn"}]},
    "corrected": {"corrections": [{"type": "ErratumIn"}]},
}
MIN_TITLE_LETTERS = 30
"""Letters that a title must have to identify an article."""
_NO_LETTERS = re.compile(r"[\W_]+")
_RIS_TYPES = {
    "JOUR": "article-journal",
    "EJOUR": "article-journal",
    "BOOK": "book",
    "CHAP": "chapter",
    "RPRT": "report",
    "THES": "thesis",
    "CONF": "paper-conference",
    "CPAPER": "paper-conference",
    "ELEC": "webpage",
}
_CROSSREF_TYPES = {
    "journal-article": "article-journal",
    "book-chapter": "chapter",
    "proceedings-article": "paper-conference",
    "posted-content": "article",
    "monograph": "book",
    "dissertation": "thesis",
}
_BIBTEX_TYPES = {
    "article": "article-journal",
    "book": "book",
    "incollection": "chapter",
    "inbook": "chapter",
    "inproceedings": "paper-conference",
    "conference": "paper-conference",
    "phdthesis": "thesis",
    "mastersthesis": "thesis",
    "techreport": "report",
    "online": "webpage",
}


@dataclass(frozen=True, slots=True)
class ReferenceEntry:
    """One entry of a file. `metadata` has the names of `docs/documents.md`."""

    key: str
    title: str = ""
    abstract: str = ""
    date: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """Files that the entry names, as paths with `/`."""


def parse_references(text: str) -> tuple[list[ReferenceEntry], list[tuple[str, str]]]:
    """Return the entries, and (place, reason) of those that cannot be read. Raises ValueError for another kind of file.

    The beginning of the text decides on the format.
    """
    entries, faults = _parse_entries(text)
    entries = [replace(entry, abstract="") if is_empty(entry.abstract) else entry for entry in entries]
    return _number_keys(_apply_notices(entries)), faults


def _parse_entries(text: str) -> tuple[list[ReferenceEntry], list[tuple[str, str]]]:
    if is_reference_header(split_header(text)[0]):
        rows, faults = read_reference_rows(text)
        return [_from_row(row, number) for number, row in enumerate(rows, 1)], faults
    start = text.lstrip()[:1]
    if start in ("[", "{"):
        return _parse_csl(text)
    if re.search(r"^\s{0,20}@\w{1,40}\s{0,20}[{(]", text, re.MULTILINE):
        return _parse_bibtex(text)
    if format := detect_tagged_format(text):
        convert = _from_nbib if format in ("nbib", "pubmed-abstracts") else _from_ris
        return [convert(record, number) for number, record in enumerate(read_tagged(text, format), 1)], []
    if is_pubmed_summary(text):
        raise ValueError("PubMed's Summary, which has no abstracts; save the format PubMed or Abstract (text) there")
    raise ValueError("no entries of nbib, RIS, BibTeX or CSL-JSON in it; check what file this is")


def _number_keys(entries: Iterable[ReferenceEntry]) -> list[ReferenceEntry]:
    """Return the entries, the second of a key that has another text as `key~2`. Copies keep the key."""
    texts: dict[str, list[tuple[str, str]]] = defaultdict(list)
    numbered = []
    for entry in entries:
        text, known = (entry.title, entry.abstract), texts[entry.key]
        if text not in known:
            known.append(text)
        number = known.index(text) + 1
        numbered.append(replace(entry, key=f"{entry.key}~{number}") if number > 1 else entry)
    return numbered


def _apply_notices(entries: Sequence[ReferenceEntry]) -> list[ReferenceEntry]:
    """Return the entries, marked where a notice in the same file names their PMID, their DOI or their title."""
    by_id: dict[str, Mapping[str, Any]] = {}
    by_title: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        for correction in entry.metadata.get("corrections", ()):
            if mark := MARK_BY_RELATION.get(correction["type"]):
                for id in filter(None, (correction.get("pmid"), _find_doi([correction.get("source", "")]))):
                    by_id[id] = merge_marks(by_id.get(id, {}), _METADATA_BY_MARK[mark])
        if entry.metadata.get("retraction_notice"):
            by_title[fold_title(find_named_title(entry.title))] = _METADATA_BY_MARK["retracted"]
        elif doubted := find_doubted_title(entry.title):
            by_title.setdefault(fold_title(doubted), _METADATA_BY_MARK["expression-of-concern"])
    marked = []
    for entry in entries:
        marks: Mapping[str, Any] = {}
        for id in (entry.metadata.get("pmid", ""), entry.metadata.get("doi", "")):
            marks = merge_marks(marks, by_id[id]) if id in by_id else marks
        title = fold_title(entry.title)
        if len(title) >= MIN_TITLE_LETTERS and not entry.metadata.get("retraction_notice") and title in by_title:
            marks = merge_marks(marks, by_title[title])
        marked.append(replace(entry, metadata=merge_marks(entry.metadata, marks)) if marks else entry)
    return marked


def fold_title(title: str) -> str:
    """Return the letters and digits of a title, by which two are compared."""
    return _NO_LETTERS.sub("", title).casefold()


def _first(record: TaggedRecord, *tags: str) -> str:
    for tag in tags:
        for value in record.get(tag, ()):
            if value:
                return remove_markup(value)
    return ""


def _all(record: TaggedRecord, *tags: str) -> list[str]:
    """Return the values of the first of these tags that has one."""
    for tag in tags:
        values = [remove_markup(value) for value in record.get(tag, ()) if value.strip()]
        if values:
            return values
    return []


def _join_abstracts(record: TaggedRecord, *tags: str) -> str:
    """Return the parts of an abstract in order, without those that another part contains."""
    parts = [part for tag in tags for value in record.get(tag, ()) if not is_empty(part := remove_markup(value))]
    kept: list[str] = []
    for number, part in enumerate(parts):
        others = [*kept, *parts[number + 1 :]]
        if not any(part in other and part != other for other in others) and part not in kept:
            kept.append(part)
    return " ".join(kept)


def _ris_source(record: TaggedRecord) -> str:
    """Return the journal in `SO`, which may also be a whole citation."""
    source = _first(record, "SO")
    return "" if any(map(str.isdigit, source)) else source


def _from_ris(record: TaggedRecord, number: int) -> ReferenceEntry:
    first, last = _first(record, "SP"), _first(record, "EP")
    is_pubmed = "pubmed" in _first(record, "DB", "DP").lower() or "medline" in _first(record, "DB", "DP").lower()
    accession = _first(record, "AN") if is_pubmed else ""
    serial = _first(record, "SN")
    is_book = _first(record, "TY") in ("BOOK", "CHAP")
    metadata = {
        "authors": [order_name(name) for name in _all(record, "AU")],
        "editors": [order_name(name) for name in _all(record, "ED", "A2", "A3")],
        "journal": "" if is_book else _first(record, "JF", "T2", "JO", "BT") or _ris_source(record),
        "book": _first(record, "T2", "BT") if _first(record, "TY") == "CHAP" else "",
        "journal_abbreviation": _first(record, "JA", "J2"),
        "volume": _first(record, "VL"),
        "issue": _first(record, "IS"),
        "page_range": f"{first}-{last}" if last not in ("", first) else first,
        "publisher": _first(record, "PB"),
        "doi": _find_doi([value for tag in ("DO", "DOI", "DI", "UR", "M3") for value in record.get(tag, ())]),
        "pmid": _find_pmid(
            accession or _first(record, "PMID"),
            [*record.get("UR", ()), *record.get("N1", ()), *record.get("ID", ())],
        ),
        "pmcid": _find_pmcid([*record.get("C2", ()), *record.get("PMC", ())]),
        "isbn" if is_book else "issn": serial,
        "url": _find_url(record.get("UR", ())),
        "keywords": _all(record, "KW"),
        "language": _all(record, "LA"),
        "reference_type": _RIS_TYPES.get(_first(record, "TY"), ""),
    }
    title, abstract = _first(record, "TI", "T1", "CT"), _join_abstracts(record, "AB", "N2")
    types = [*_all(record, "M3"), *_retracted_keywords(record.get("KW", ()))]
    metadata = merge_marks(metadata, find_retraction(title, abstract, types, record.get("N1", ())))
    return ReferenceEntry(
        key=_first(record, "ID") or str(number),
        title=title,
        abstract=abstract,
        date=find_publication_date(_first(record, "DA")) or find_publication_date(_first(record, "PY", "Y1")),
        metadata=_without_empty(metadata),
        files=tuple(_file_path(value) for value in record.get("L1", ()) if value),
    )


def _from_nbib(record: TaggedRecord, number: int) -> ReferenceEntry:
    identifiers = [value for value in (*record.get("AID", ()), *record.get("LID", ())) if value.endswith("[doi]")]
    pmid = _first(record, "PMID")
    metadata: dict[str, Any] = {
        "authors": [*_all(record, "FAU", "AU"), *_all(record, "CN")],
        "group_authors": _all(record, "CN"),
        "journal": _first(record, "JT"),
        "journal_abbreviation": _first(record, "TA"),
        "volume": _first(record, "VI"),
        "issue": _first(record, "IP"),
        "page_range": _first(record, "PG"),
        "doi": _find_doi(identifiers),
        "pmid": pmid if _NUMBER.fullmatch(pmid) else "",
        "pmcid": _find_pmcid(record.get("PMC", ())),
        "issn": _first(record, "IS").partition(" ")[0],
        "publication_types": _all(record, "PT"),
        "corrections": list(_list_corrections(record)),
        "mesh": [value.replace("*", "") for value in _all(record, "MH")],
        "keywords": _all(record, "OT"),
        "language": _all(record, "LA"),
    }
    title, abstract = _first(record, "TI", "BTI"), _join_abstracts(record, "AB") or _join_abstracts(record, "OAB")
    relations = {correction["type"] for correction in metadata["corrections"]}
    if not RETRACTION_RELATIONS.isdisjoint(relations):
        metadata["retracted"] = True
    if "RetractionOf" in relations:
        metadata["retraction_notice"] = True
    metadata = merge_marks(metadata, find_retraction(title, abstract, metadata["publication_types"]))
    return ReferenceEntry(
        key=pmid or str(number),
        title=title,
        abstract=abstract,
        date=parse_printed_date(_first(record, "DP")) if record.get("DP") else None,
        metadata=_without_empty(metadata),
    )


def _list_corrections(record: TaggedRecord) -> Iterator[dict[str, str]]:
    """Yield the notices about an article, or the articles of a notice, as PubMed's XML has them."""
    for tag, kind in _CORRECTIONS.items():
        for value in record.get(tag, ()):
            correction = {"type": kind, "pmid": _find_pmid("", [value]), "source": remove_markup(value)}
            yield {name: text for name, text in correction.items() if text}


def _retracted_keywords(keywords: Iterable[str]) -> list[str]:
    """Return the keywords that are PubMed's publication type; others may name a retraction of something else."""
    return [keyword for keyword in keywords if keyword.strip().casefold() == "retracted publication"]


def _parse_bibtex(text: str) -> tuple[list[ReferenceEntry], list[tuple[str, str]]]:
    import logging

    from bibtexparser.entrypoint import parse_string
    from bibtexparser.model import (
        DuplicateBlockKeyBlock,
        DuplicateFieldKeyBlock,
        Entry,
        ImplicitComment,
        ParsingFailedBlock,
        String,
    )

    for name in ("bibtexparser", "pylatexenc"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    entries: list[ReferenceEntry] = []
    faults: list[tuple[str, str]] = []
    strings: dict[str, str] = {}
    blocks = parse_string(text, parse_stack=[]).blocks
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        # An entry with a key, or a field, that another one has is an entry too.
        entry = (
            block.ignore_error_block if isinstance(block, DuplicateBlockKeyBlock | DuplicateFieldKeyBlock) else block
        )
        line = (block.start_line or 0) + 1
        end = line + (block.raw or "").count("\n") - 1
        # A closing brace too many ends an entry within a value.
        is_cut = isinstance(following, ImplicitComment) and following.start_line == end and "}" in following.comment
        try:
            if (isinstance(block, ParsingFailedBlock) and entry is block) or is_cut:
                raise ValueError(BROKEN)
            if isinstance(entry, String):
                strings |= read_values(entry.key.lower(), str(entry.value), strings)
            elif isinstance(entry, Entry):
                fields: dict[str, str] = {}
                for item in entry.fields:
                    fields = read_values(item.key.lower(), str(item.value), strings) | fields
                entries.append(_from_bibtex(entry.key, entry.entry_type.lower(), fields))
        except ValueError as error:
            faults.append((f"line {line}", f"{error}; correct it, or export it again"))
    return entries, faults


def _from_bibtex(key: str, type: str, fields: Mapping[str, str]) -> ReferenceEntry:
    texts = {name: remove_markup(decode_latex(value)) for name, value in fields.items() if name != "file"}
    pmid = texts.get("pmid", "")
    doi, url = decode_address(fields.get("doi", "")), decode_address(fields.get("url", ""))
    notes = [texts.get(name, "") for name in ("note", "annote", "annotation")]
    metadata: dict[str, Any] = {
        "authors": _bibtex_names(fields.get("author", "")),
        "editors": _bibtex_names(fields.get("editor", "")),
        "journal": texts.get("journal", "") or texts.get("journaltitle", ""),
        "book": texts.get("booktitle", ""),
        "volume": texts.get("volume", ""),
        "issue": texts.get("number", "") or texts.get("issue", ""),
        "page_range": texts.get("pages", "").replace("–", "-").replace("--", "-"),
        "publisher": texts.get("publisher", ""),
        "publisher_place": texts.get("address", ""),
        "edition": texts.get("edition", ""),
        "doi": _find_doi([doi, url]),
        "pmid": pmid if _NUMBER.fullmatch(pmid) else _find_pmid("", [url, *notes]),
        "pmcid": _find_pmcid([texts.get("pmcid", ""), *notes]),
        "isbn": texts.get("isbn", ""),
        "issn": texts.get("issn", ""),
        "url": _find_url([url]),
        "keywords": _split_keywords(texts.get("keywords", "")),
        "language": [texts["language"]] if texts.get("language") else [],
        "reference_type": _BIBTEX_TYPES.get(type, ""),
    }
    types = [texts.get("type", ""), *_retracted_keywords(metadata["keywords"])]
    metadata = merge_marks(metadata, find_retraction(texts.get("title", ""), texts.get("abstract", ""), types, notes))
    month = texts.get("month", "").lower()
    year = texts.get("date", "") or texts.get("year", "")
    number = next((_MONTHS[word[:3]] for word in _WORD.findall(month) if word[:3] in _MONTHS), None)
    if month.isdecimal() and 1 <= int(month[:3]) <= 12:
        number = int(month)
    return ReferenceEntry(
        key=key,
        title=texts.get("title", ""),
        abstract=texts.get("abstract", ""),
        date=find_publication_date(f"{year}-{number:02}" if number and re.fullmatch(r"\d{4}", year) else year),
        metadata=_without_empty(metadata),
        files=tuple(_bibtex_files(fields.get("file", ""))),
    )


def _bibtex_names(value: str) -> list[str]:
    from bibtexparser.middlewares.names import split_multiple_persons_names

    names: list[str] = []
    for name in split_multiple_persons_names(value) if value else ():
        is_group = name.strip().startswith("{") and name.strip().endswith("}")
        plain = remove_markup(decode_latex(name))
        words = plain.split()
        if not is_group and "," not in plain and len(words) > 1:
            plain = f"{words[-1]}, {' '.join(words[:-1])}"
        if plain and plain.lower() != "others":
            names.append(plain)
    return names


def _bibtex_files(value: str) -> Iterator[str]:
    """Yield the paths of a `file` field, as Zotero, JabRef and Mendeley write it: `title:path:type;...`."""
    for item in re.split(r"(?<!\\);", value):
        parts = [re.sub(r"\\([:;\\_&%])", r"\1", part) for part in re.split(r"(?<!\\):", item)]
        path = parts[0] if len(parts) == 1 else parts[1] if len(parts) > 2 or not parts[0] else parts[0]
        if path.strip():
            yield _file_path(path.strip())


def _parse_csl(text: str) -> tuple[list[ReferenceEntry], list[tuple[str, str]]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("not valid JSON; export it again") from error
    if isinstance(data, dict) and isinstance(data.get("message"), dict):
        # Crossref wraps what it was asked for.
        data = data["message"]
    items = data.get("items", [data]) if isinstance(data, dict) else data
    entries: list[ReferenceEntry] = []
    faults: list[tuple[str, str]] = []
    for number, item in enumerate(items, 1):
        if isinstance(item, dict) and isinstance(item.get("title", ""), str | list) and not _is_bare(item):
            entries.append(_from_csl(item, number))
        else:
            faults.append((f"entry {number}", "no entry of CSL-JSON; export it again"))
    return entries, faults


def _is_bare(item: Mapping[str, Any]) -> bool:
    return "type" not in item and "title" not in item


def _from_csl(item: Mapping[str, Any], number: int) -> ReferenceEntry:
    record: dict[str, list[str]] = defaultdict(list)
    for key, value in item.items():
        values = value if isinstance(value, list) else [value]
        record[key.upper()] += [str(text) for text in values if isinstance(text, str | int)]
    kind = _CROSSREF_TYPES.get(_first(record, "TYPE"), _first(record, "TYPE"))
    container = _first(record, "CONTAINER-TITLE")
    pmid = _first(record, "PMID")
    keywords = _first(record, "KEYWORD")
    dates = ("issued", "published", "published-print", "published-online")
    metadata: dict[str, Any] = {
        "authors": list(_csl_names(item.get("author"))),
        "editors": list(_csl_names(item.get("editor"))),
        "journal": "" if kind == "chapter" else container,
        "book": container if kind == "chapter" else "",
        "journal_abbreviation": _first(record, "CONTAINER-TITLE-SHORT", "SHORT-CONTAINER-TITLE", "JOURNALABBREVIATION"),
        "volume": _first(record, "VOLUME"),
        "issue": _first(record, "ISSUE"),
        "page_range": _first(record, "PAGE"),
        "publisher": _first(record, "PUBLISHER"),
        "publisher_place": _first(record, "PUBLISHER-PLACE"),
        "edition": _first(record, "EDITION"),
        "doi": _find_doi(record.get("DOI", ())),
        "pmid": pmid if _NUMBER.fullmatch(pmid) else _find_pmid("", [*record.get("NOTE", ()), *record.get("URL", ())]),
        "pmcid": _find_pmcid([*record.get("PMCID", ()), *record.get("NOTE", ())]),
        "isbn": _first(record, "ISBN"),
        "issn": _first(record, "ISSN"),
        "url": _find_url(record.get("URL", ())),
        "keywords": _split_keywords(keywords),
        "language": _all(record, "LANGUAGE"),
        "reference_type": kind,
    }
    title, abstract = _first(record, "TITLE"), _first(record, "ABSTRACT")
    types = [*_all(record, "GENRE"), *_all(record, "STATUS"), *_retracted_keywords(metadata["keywords"])]
    types += [*_list_updates(item.get("updated-by"), "retracted"), *_list_updates(item.get("update-to"), "retraction")]
    metadata = merge_marks(metadata, find_retraction(title, abstract, types, record["NOTE"]))
    metadata = merge_marks(metadata, {"corrections": _list_updated(item.get("update-to"))})
    return ReferenceEntry(
        key=_first(record, "ID") or str(number),
        title=title,
        abstract=abstract,
        date=next(filter(None, (_csl_date(item.get(name)) for name in dates)), None),
        metadata=_without_empty(metadata),
    )


def _list_updates(updates: Any, kind: str) -> list[str]:
    """Return `kind` if one of Crossref's updates is a retraction."""
    entries = [update for update in updates if isinstance(update, dict)] if isinstance(updates, list) else []
    return [kind for update in entries if str(update.get("type")) in ("retraction", "withdrawal", "removal")]


def _list_updated(updates: Any) -> list[dict[str, str]]:
    """Return the articles that a notice of Crossref names, as relations of PubMed."""
    entries = [update for update in updates if isinstance(update, dict)] if isinstance(updates, list) else []
    return [
        {"type": _CROSSREF_UPDATES[str(update.get("type"))], "source": f"doi: {update['DOI']}"}
        for update in entries
        if str(update.get("type")) in _CROSSREF_UPDATES and update.get("DOI")
    ]


def _csl_names(value: Any) -> Iterator[str]:
    for name in value if isinstance(value, list) else ():
        if not isinstance(name, dict):
            continue
        family = " ".join(str(name[key]) for key in ("non-dropping-particle", "family") if name.get(key))
        parts = [family, str(name.get("given") or "")]
        full = ", ".join(filter(None, parts)) or str(name.get("literal") or "")
        if full:
            yield remove_markup(full)


def _csl_date(value: Any) -> str | None:
    """Return a date in parts, or in text: EDTF as the schema has it, or another. A range is its beginning."""
    if isinstance(value, str | int):
        return find_publication_date(str(value))
    parts = value.get("date-parts") if isinstance(value, dict) else value
    if isinstance(parts, list) and parts:
        first = parts[0] if isinstance(parts[0], list) else parts
        if date := find_publication_date("-".join(map(str, first[:3]))):
            return date
    if not isinstance(value, dict):
        return None
    texts = (str(value.get(name) or "") for name in ("edtf", "raw", "literal"))
    return next(filter(None, map(find_publication_date, texts)), None)


def _from_row(row: Mapping[str, str], number: int) -> ReferenceEntry:
    """Return the entry of a row of a table."""
    texts = {name: remove_markup(value) for name, value in row.items() if value not in PLACEHOLDERS}
    first, last = texts.get("first_page", ""), texts.get("last_page", "")
    pages = f"{first}-{last}" if first and last not in ("", first) else first
    types = [part.strip() for part in texts.get("types", "").split(";") if part.strip()]
    notes = [row.get("notes", ""), row.get("extra", "")]
    named = ("journal", "volume", "issue", "issn", "isbn", "publisher")
    metadata: dict[str, Any] = {name: texts.get(name, "") for name in named}
    metadata |= {
        "authors": split_authors(texts.get("authors", "")),
        "editors": split_authors(texts.get("editors", "")),
        "page_range": texts.get("pages", "") or pages,
        "doi": _find_doi([row.get("doi", ""), row.get("url", "")]),
        "pmid": _find_pmid(texts.get("pmid", "").removesuffix(".0"), [row.get("pmid", ""), row.get("url", ""), *notes]),
        "pmcid": _find_pmcid([row.get("pmcid", ""), *notes]),
        "url": _find_url([row.get("url", "")]),
        "keywords": _split_keywords(texts.get("keywords", "")),
        "language": [texts["language"]] if texts.get("language") else [],
        "publication_types": types,
    }
    title, abstract = texts.get("title", ""), texts.get("abstract", "")
    metadata = merge_marks(metadata, find_retraction(title, abstract, types, notes))
    date = find_publication_date(texts.get("date", ""))
    year = find_publication_date(texts.get("year", ""))
    if year and (not date or date[:4] != year[:4]):
        printed = f"{year[:4]} {texts.get('month', '')} {texts.get('day', '')}"
        date = parse_printed_date(printed) or year
    return ReferenceEntry(key=str(number), title=title, abstract=abstract, date=date, metadata=_without_empty(metadata))


def _find_doi(values: Iterable[str]) -> str:
    """Return the first DOI. Addresses write signs of it as `%2F`, databases as `&lt;`."""
    return next(iter(find_dois(unquote(html.unescape("\n".join(values))))), "")


def _find_pmid(accession: str, values: Sequence[str]) -> str:
    if _NUMBER.fullmatch(accession):
        return accession
    match = _PMID_NAMED.search("\n".join(values))
    return match[1] if match else ""


def _find_pmcid(values: Iterable[str]) -> str:
    match = _PMCID.search("\n".join(values))
    return match[0] if match else ""


def _find_url(values: Iterable[str]) -> str:
    for value in values:
        if value.startswith(("http://", "https://")):
            return value
    return ""


def _split_keywords(value: str) -> list[str]:
    return [word.strip() for word in re.split(r"[;,]", value) if word.strip()]


def _file_path(value: str) -> str:
    """Return a path or a `file:` address as a path with `/`."""
    for prefix in ("file://", "internal-pdf://"):
        if value.startswith(prefix):
            value = unquote(value.removeprefix(prefix))
    return value.replace("\\", "/")


def _without_empty(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if value}
