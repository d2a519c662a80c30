"""Split the exports of reference managers into records of tags: RIS, nbib, Web of Science, EndNote's two, Cochrane's,
and PubMed's abstracts as text.

EndNote writes Refer (`%A`) and, as "Show All Fields", names of fields (`Author:`).

    for record in read_tagged(text, "ris"):
        title = record.get("TI", [""])[0]

Lines of an abstract may look like tags (`HR - 0.80`, `ER- tumours`). A line is a tag if the spaces before its dash are
as in the other lines of the file. Within an abstract, a line with an unknown tag is text if a number or a small letter
follows, unless it is an address, or if the tag is of three letters or more and stands nowhere else.

Of the published parsers, rispy joins two records where the line `ER` is missing and fails on tags with one space, and
nbib has had no release since 2021.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from epicrisis.corpus.articles.pubmed_record import parse_printed_date
from epicrisis.corpus.references.pubmed_abstracts import is_pubmed_abstracts, is_pubmed_summary, read_pubmed_abstracts

TaggedFormat: TypeAlias = Literal[
    "ris", "nbib", "web-of-science", "refer", "endnote-fields", "cochrane", "pubmed-abstracts"
]
TaggedRecord: TypeAlias = Mapping[str, list[str]]
"""The values of a record by tag, in order."""
_Pair: TypeAlias = tuple[str, str]
"""A tag and its value."""

_LINE_END = re.compile(r"\r\n|\r|\n")
"""No other signs: U+2028 and the vertical tab stand within abstracts."""
_TAG_LINE = re.compile(r"([A-Z][A-Z0-9]{1,3})( {0,3})-(?:\s(.*)|$)")
_ANCHORS = frozenset("TY PMID FAU OWN STAT TI T1 AU A1 PY Y1 DB DO".split())  # noqa: SIM905
"""Tags by which the form of a file is known."""
_ABSTRACT_TAGS = frozenset(("AB", "N2", "OAB"))
_RIS_TAGS = frozenset(
    """
    A1 A2 A3 A4 AB AD AN AU AV BT C1 C2 C3 C4 C5 C6 C7 C8 CA CN CP CY DA DB DI DO DOI DP ED EP ER ET ID IS ISBN ISSN J1
    J2 JA JF JO KW L1 L2 L3 L4 LA LB LINK LK M1 M2 M3 N1 N2 NV OP PB PMC PMID PP PY RI RN RP SN SO SP ST T1 T2 T3 T4 TA
    TI TT TY U1 U2 U3 U4 U5 UR URL VL VO Y1 Y2
    """.split()  # noqa: SIM905
)
_NBIB_TAGS = frozenset(
    """
    AB AD AID AU AUID BTI CDAT CI CIN CN COI COIS CON CRDT CRF CRI CTDT CTI DCOM DDIN DEP DP DRDT DRIN ECF ECI EDAT EFR
    EIN EN FAU FED FIR FPS GN GR GS IP IR IRAD IS ISBN JID JT LA LID LR MH MHDA MID NM OAB OABL OCI OID ORI OT OTO OWN
    PB PG PHST PL PMC PMCR PMID PRIN PROF PS PST PT PUBM RF RIN RN ROF RPF RPI RRF RRI SB SFM SI SO SPIN STAT TA TI TT
    UIN UOF VI VTI
    """.split()  # noqa: SIM905
)
_ONCE = frozenset("TI T1 DB ID PMID".split())  # noqa: SIM905
"""Tags that a record has once, so that a second one begins the next record of a file without `TY`."""
PLACEHOLDERS = frozenset(("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None"))
"""What programs write into empty fields."""
_RIS_ONLY = frozenset("A1 DO ER JF JO N2 PY SP T1 T2 UR VL Y1".split())  # noqa: SIM905
_NBIB_ONLY = frozenset("FAU JT OWN STAT DP PMID".split())  # noqa: SIM905
_TYPE_LINE = re.compile(r"TY {0,3}-(?:\s|$)")
_TYPE_CODE = re.compile(r"[A-Z]{3,6}")
_FULL_TYPE_LINE = re.compile(r"TY {1,3}- {0,2}[A-Z]{3,6}\s*$")
_BIBTEX_LINE = re.compile(r"@(?:article|book|inbook|incollection|inproceedings|misc|phdthesis|string)\{", re.IGNORECASE)
_PMID_LINE = re.compile(r"PMID {0,2}- {0,2}\d")
_TITLE_LINE = re.compile(r"T[I1] {0,3}-\s")
_END_LINE = re.compile(r"ER(?: {0,3}-)?\s*$")
_ADDRESSES = ("http://", "https://")

_WOS_LINE = re.compile(r"([A-Z][A-Z0-9])(?: (.*)|$)")
_WOS_TYPE = re.compile(r"PT [A-Z]\s*$")
_WOS_LISTS = frozenset(("AU", "AF"))
_WOS_TO_RIS = {
    "TI": "TI",
    "SO": "JF",
    "J9": "JA",
    "AB": "AB",
    "PY": "PY",
    "VL": "VL",
    "IS": "IS",
    "EP": "EP",
    "DI": "DO",
    "PM": "PMID",
    "SN": "SN",
    "LA": "LA",
    "PU": "PB",
    "DT": "M3",
}
_WOS_TYPES = {"J": "JOUR", "B": "BOOK", "C": "CONF", "S": "JOUR"}

_REFER_LINE = re.compile(r"%([^\s\w]|[A-Z0-9])(?: (.*)|$)")
_REFER_START = re.compile(r"\s*%(?:0 [A-Z]|[A-Z] [^\n]*\n%[A-Z0-9@] )")
_REFER_TYPE = re.compile(r"\s*%0 [A-Z]")
_REFER_TO_RIS = {
    "A": "AU",
    "T": "TI",
    "J": "JF",
    "D": "PY",
    "V": "VL",
    "N": "IS",
    "P": "SP",
    "R": "DO",
    "U": "UR",
    "X": "AB",
    "K": "KW",
    "@": "SN",
    "I": "PB",
    "E": "ED",
    "Z": "N1",
    "G": "LA",
    ">": "L1",
    "B": "T2",
    "9": "M3",
    "F": "ID",
}
_COCHRANE_START = re.compile(r"\s*Record #\d{1,6} of \d{1,6}[ \t]*\r?\n[A-Z]{2}: ")
_COCHRANE_LINE = re.compile(r"([A-Z]{2,3}): (.*)")
_COCHRANE_TO_RIS = {
    "ID": "ID",
    "AU": "AU",
    "TI": "TI",
    "SO": "JF",
    "YR": "PY",
    "VL": "VL",
    "NO": "IS",
    "PG": "SP",
    "DOI": "DO",
    "AB": "AB",
    "PB": "PB",
    "PT": "M3",
    # Not read, and no part of the field before them. The address is Cochrane's, and would become a DOI.
    **dict.fromkeys(("US", "XR", "CC", "RG", "KY", "NT", "CY", "SN", "LA", "CO"), ""),
}
_FIELD_LINE = re.compile(r"([A-Z][A-Za-z0-9/' -]{2,40}):(?:[ \t]+(.*)|$)")
_FIELDS_START = re.compile(r"\s*Reference Type:[ \t]+\S[^\n]*\n(?:Record Number|Author|Editor|Year|Title):")
_FIELDS_TO_RIS = {
    "Author": "AU",
    "Title": "TI",
    "Journal": "JF",
    "Book Title": "T2",
    "Secondary Title": "T2",
    "Year": "PY",
    "Volume": "VL",
    "Issue": "IS",
    "Number": "IS",
    "Pages": "SP",
    "DOI": "DO",
    "URL": "UR",
    "Abstract": "AB",
    "Keywords": "KW",
    "ISSN": "SN",
    "ISBN": "SN",
    "ISSN/ISBN": "SN",
    "ISBN/ISSN": "SN",
    "Publisher": "PB",
    "Editor": "ED",
    "Notes": "N1",
    "Language": "LA",
    "Edition": "ET",
    "Label": "ID",
}
_OTHER_FIELDS = frozenset(
    (
        "Record Number",
        "Short Title",
        "Alternate Journal",
        "Accession Number",
        "Author Address",
        "Name of Database",
        "Database Provider",
        "Research Notes",
        "Type of Article",
        "Epub Date",
        "Date",
        "Access Date",
        "Last Modified Date",
        "PMCID",
        "NIHMSID",
        "Start Page",
        "Legal Note",
        "Call Number",
        "Caption",
        "Translated Author",
        "Translated Title",
        "Original Publication",
        "Reprint Edition",
        "Reviewed Item",
        "Article Number",
        "Place Published",
        "City",
        "'File' Attachments",
        "Link to PDF",
        *(f"Custom {number}" for number in range(1, 9)),
    )
)
"""Fields that are not read, but end the field before them."""
_REFER_TYPES = {
    "journal article": "JOUR",
    "electronic article": "EJOUR",
    "book": "BOOK",
    "edited book": "BOOK",
    "book section": "CHAP",
    "report": "RPRT",
    "thesis": "THES",
    "conference proceedings": "CONF",
    "conference paper": "CPAPER",
    "web page": "ELEC",
}


def detect_tagged_format(text: str) -> TaggedFormat | None:
    """Return the format of a text with records, or None if it has none."""
    text = text.removeprefix("\ufeff")
    if _is_web_of_science(text):
        return "web-of-science"
    if _REFER_START.match(text):
        return "refer"
    if _FIELDS_START.match(text):
        return "endnote-fields"
    if _COCHRANE_START.match(text):
        return "cochrane"
    if is_pubmed_abstracts(text):
        return "pubmed-abstracts"
    return _detect_dashed_format(text)


def _detect_dashed_format(text: str) -> TaggedFormat | None:
    """Return whether the tags before dashes are those of RIS or nbib."""
    tags: set[str] = set()
    for line in _LINE_END.split(text):
        if _TYPE_LINE.match(line) or (tags and _END_LINE.match(line)):
            return "ris"
        if match := _TAG_LINE.match(line):
            tags.add(match[1])
    if tags & _NBIB_ONLY:
        return "nbib"
    if tags & _RIS_ONLY and tags & _ANCHORS:
        return "ris"
    return "nbib" if "TI" in tags else None


def begins_with_record(text: str) -> bool:
    """Return whether a text begins with a record of one of the formats, after up to five lines of another kind.

    Unlike `detect_tagged_format` this rejects prose, and is for files whose ending does not decide.
    """
    text = text.removeprefix("\ufeff")
    if _REFER_TYPE.match(text) or _FIELDS_START.match(text) or _COCHRANE_START.match(text):
        return True
    if _is_web_of_science(text) or is_pubmed_abstracts(text) or is_pubmed_summary(text):
        return True
    lines = [line for line in _LINE_END.split(text) if line.strip()]
    if lines and {"PT", "AU", "TI", "SO"}.issubset(lines[0].split("\t")):
        return True
    if lines and (_PMID_LINE.match(lines[0]) or _BIBTEX_LINE.match(lines[0])):
        return True
    if any(_FULL_TYPE_LINE.match(line) for line in lines[:6]):
        return True
    beginning = [match[1] for line in lines[:3] if (match := _TAG_LINE.match(line))]
    return len(beginning) == 3 and _RIS_TAGS.issuperset(beginning) and any(_END_LINE.match(line) for line in lines)


def _is_web_of_science(text: str) -> bool:
    lines = [line for line in _LINE_END.split(text[:2_000]) if line.strip() and line[:3] not in ("FN ", "VR ")]
    return len(lines) > 1 and _WOS_TYPE.match(lines[0]) is not None and _WOS_LINE.match(lines[1]) is not None


def read_tagged(text: str, format: TaggedFormat) -> Iterator[TaggedRecord]:
    """Yield the records of a text with the tags of RIS. Those of nbib and of PubMed's abstracts have nbib's."""
    lines = _LINE_END.split(text.removeprefix("\ufeff"))
    if format == "web-of-science":
        yield from _read_web_of_science(lines)
    elif format == "refer":
        yield from _read_refer(lines)
    elif format == "endnote-fields":
        yield from _read_fields(lines)
    elif format == "cochrane":
        yield from _read_cochrane(lines)
    elif format == "pubmed-abstracts":
        yield from map(_group_values, read_pubmed_abstracts("\n".join(lines)))
    else:
        yield from _read_dashed(lines, is_nbib=format == "nbib")


class _TagForm:
    """How the tags of a file are written, by the lines with common tags."""

    def __init__(self, lines: Sequence[str], known: frozenset[str]) -> None:
        self._known = known
        self._spaces: dict[int, set[int]] = {}
        self._columns: set[int] = set()
        self._outside: set[str] = set()
        """Tags that stand outside abstracts."""
        in_abstract = True
        for line in lines:
            match = _TAG_LINE.match(line)
            if match is None:
                continue
            if match[1] in _ANCHORS:
                self._spaces.setdefault(len(match[1]), set()).add(len(match[2]))
                self._columns.add(match.end(2))
            if match[1] in known:
                in_abstract = match[1] in _ABSTRACT_TAGS
            elif not in_abstract:
                self._outside.add(match[1])

    def split(self, line: str, in_abstract: bool) -> tuple[str, str] | None:
        """Return the tag and the value of a line, or None for one that continues a value."""
        match = _TAG_LINE.match(line)
        if match is None:
            return None
        tag, value = match[1], (match[3] or "").strip()
        spaces = self._spaces.get(len(tag))
        is_regular = len(match[2]) in spaces if spaces else match.end(2) in self._columns
        if tag == "ER":
            return None if value and in_abstract else (tag, value)
        if not is_regular:
            return None
        if in_abstract and tag not in self._known and tag not in self._outside:
            is_long = len(tag) > 2 and tag.isalpha()
            is_value = value[:1].isupper() or value.startswith(_ADDRESSES) or any(map(str.isdigit, tag))
            if is_long or not is_value:
                return None
        return tag, value


def _read_dashed(lines: Sequence[str], is_nbib: bool) -> Iterator[TaggedRecord]:
    """Yield the records of RIS or nbib.

    `TY` begins a record, or the next one if the record already has it: some programs write other tags before it. `ER`
    ends one. Without `TY`, a blank line before a repeated tag divides records; in nbib `PMID` begins one too.
    """
    form = _TagForm(lines, _NBIB_TAGS if is_nbib else _RIS_TAGS)
    pairs: list[_Pair] = []
    is_after_blank = False
    for number, line in enumerate(lines):
        if not line.strip():
            is_after_blank = True
            continue
        in_abstract = bool(pairs) and pairs[-1][0] in _ABSTRACT_TAGS
        pair = form.split(line, in_abstract)
        if pair and pair[0] == "TY" and in_abstract and not _TYPE_CODE.fullmatch(pair[1]):
            # A line of the abstract, such as `TY- mice lost weight.`
            pair = None
        is_end = not is_nbib and (pair[0] == "ER" if pair else _is_bare_end(lines, number))
        if pair and pair[0] == "TY":
            is_start = any(tag == "TY" for tag, _ in pairs) or (_has_title(pairs) and _is_title_ahead(lines, number))
        else:
            is_start = pair is not None and _begins_record(pair[0], pairs, is_after_blank, is_nbib)
        if pairs and (is_end or is_start):
            yield _group_values(pairs)
            pairs = []
        if pair and not is_end:
            pairs.append(pair)
        elif pairs and not is_end:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]} {line.strip()}".strip())
        is_after_blank = False
    if pairs:
        yield _group_values(pairs)


def _is_bare_end(lines: Sequence[str], number: int) -> bool:
    """Return whether a line is `ER` without its dash, before a blank line, the next record or the end."""
    if lines[number].strip() != "ER":
        return False
    following = lines[number + 1] if number + 1 < len(lines) else ""
    return not following.strip() or _TYPE_LINE.match(following) is not None


def _begins_record(tag: str, pairs: Sequence[_Pair], is_after_blank: bool, is_nbib: bool) -> bool:
    """Return whether a tag other than `TY` begins the next record."""
    tags = [pair[0] for pair in pairs]
    if is_nbib:
        return is_after_blank or (tag == "PMID" and "PMID" in tags)
    if not tags or "TY" in tags:
        return False
    return (tag in _ONCE and tag in tags) or (is_after_blank and tag == tags[0])


def _has_title(pairs: Iterable[_Pair]) -> bool:
    return any(tag in ("TI", "T1") for tag, _ in pairs)


def _is_title_ahead(lines: Sequence[str], number: int) -> bool:
    """Return whether a title follows a line before the end of the record."""
    for following in range(number + 1, len(lines)):
        if _TITLE_LINE.match(lines[following]):
            return True
        if _END_LINE.match(lines[following]) or _TYPE_LINE.match(lines[following]):
            break
    return False


def _group_values(pairs: Iterable[_Pair]) -> TaggedRecord:
    """Return the values by tag without placeholders. `A1` and `AU` are authors, in the order of the record."""
    record: dict[str, list[str]] = {}
    tag_of_author: dict[str, str] = {}
    for tag, value in pairs:
        if tag in ("A1", "AU"):
            # Some programs write each author under both tags.
            if tag_of_author.setdefault(value, tag) != tag:
                continue
            tag = "AU"
        if value not in PLACEHOLDERS or tag == "KW":
            record.setdefault(tag, []).append(value)
    return record


def _read_web_of_science(lines: Sequence[str]) -> Iterator[TaggedRecord]:
    pairs: list[_Pair] = []
    for line in lines:
        match = _WOS_LINE.match(line)
        if match and match[1] in ("PT", "ER", "EF"):
            if pairs:
                yield _convert_web_of_science(pairs)
            pairs = []
        if match and match[1] not in ("ER", "EF") and (pairs or match[1] == "PT"):
            pairs.append((match[1], (match[2] or "").strip()))
        elif not match and pairs and line.strip():
            if pairs[-1][0] in _WOS_LISTS:
                pairs.append((pairs[-1][0], line.strip()))
            else:
                pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]} {line.strip()}".strip())
    if pairs:
        yield _convert_web_of_science(pairs)


def _convert_web_of_science(pairs: Sequence[_Pair]) -> TaggedRecord:
    values = dict(pairs)
    names = "AF" if "AF" in values else "AU"
    converted = [("TY", _WOS_TYPES.get(values.get("PT", ""), "JOUR"))]
    for tag, value in pairs:
        if tag == names:
            converted.append(("AU", value))
        elif tag in _WOS_TO_RIS:
            converted.append((_WOS_TO_RIS[tag], value))
    converted += [("KW", word.strip()) for word in values.get("DE", "").split(";") if word.strip()]
    converted.append(("SP", values.get("BP") or values.get("AR", "")))
    if date := parse_printed_date(f"{values.get('PY', '')} {values.get('PD', '')}"):
        converted.append(("DA", date))
    return _group_values(converted)


def _read_refer(lines: Sequence[str]) -> Iterator[TaggedRecord]:
    pairs: list[_Pair] = []
    is_after_blank = False
    for line in lines:
        match = _REFER_LINE.match(line)
        first = pairs[0][0] if pairs else ""
        if match and pairs and (match[1] == "0" or (is_after_blank and match[1] == first)):
            yield _convert_refer(pairs)
            pairs = []
        if match:
            pairs.append((match[1], (match[2] or "").strip()))
        elif pairs and line.strip():
            if pairs[-1][0] == "K":
                pairs.append(("K", line.strip()))
            else:
                pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]} {line.strip()}".strip())
        is_after_blank = not line.strip()
    if pairs:
        yield _convert_refer(pairs)


def _convert_refer(pairs: Sequence[_Pair]) -> TaggedRecord:
    converted = []
    for tag, value in pairs:
        if tag == "0":
            converted.append(("TY", _REFER_TYPES.get(value.lower(), "GEN")))
        elif tag == "8" and (date := parse_printed_date(f"{dict(pairs).get('D', '')} {value}")):
            converted.append(("DA", date))
        elif tag in _REFER_TO_RIS:
            converted.append((_REFER_TO_RIS[tag], value))
    return _group_values(converted)


def _read_cochrane(lines: Sequence[str]) -> Iterator[TaggedRecord]:
    pairs: list[_Pair] = []
    for line in [*lines, "Record #"]:
        match = _COCHRANE_LINE.match(line)
        if line.startswith("Record #"):
            if pairs:
                yield _group_values(pairs)
            pairs = []
        elif match and match[1] == "KW":
            pairs += [("KW", word.strip(" *")) for word in match[2].split(";") if word.strip()]
        elif match and match[1] == "PM":
            pairs.append(("PMID", match[2].removeprefix("PUBMED ").strip()))
        elif match and match[1] in _COCHRANE_TO_RIS:
            pairs.append((_COCHRANE_TO_RIS[match[1]], match[2].strip()))
        elif pairs and line.strip():
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]} {line.strip()}")


def _read_fields(lines: Sequence[str]) -> Iterator[TaggedRecord]:
    pairs: list[_Pair] = []
    for line in lines:
        match = _FIELD_LINE.match(line)
        name = match[1] if match else ""
        value = (match[2] or "").strip() if match else line.strip()
        if name == "Reference Type":
            if pairs:
                yield _convert_fields(pairs)
            pairs = [("TY", _REFER_TYPES.get(value.lower(), "GEN"))]
        elif name in _FIELDS_TO_RIS:
            pairs.append((_FIELDS_TO_RIS[name], value))
        elif name in _OTHER_FIELDS:
            pairs.append(("", value))
        elif pairs and line.strip():
            tag, before = pairs[-1]
            if tag == "KW":
                pairs.append(("KW", line.strip()))
            else:
                pairs[-1] = (tag, f"{before} {line.strip()}".strip())
    if pairs:
        yield _convert_fields(pairs)


def _convert_fields(pairs: Sequence[_Pair]) -> TaggedRecord:
    converted: list[_Pair] = []
    for tag, value in pairs:
        if tag in ("AU", "ED"):
            converted += [(tag, name) for name in _split_names(value)]
        elif tag:
            converted.append((tag, value))
    return _group_values(converted)


def _split_names(value: str) -> list[str]:
    """Return the names of `Doe, A. B., Roe, C. and Poe, D.`"""
    names: list[str] = []
    for part in re.split(r";|\band\b", value):
        pieces = [piece.strip() for piece in part.split(",") if piece.strip()]
        if len(pieces) % 2:
            names.append(", ".join(pieces))
        else:
            names += [f"{pieces[place]}, {pieces[place + 1]}" for place in range(0, len(pieces), 2)]
    return [name for name in names if name]
