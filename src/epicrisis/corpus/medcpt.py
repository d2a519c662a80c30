"""NCBI's precomputed MedCPT article embeddings: PubMed with the vectors of its titles and abstracts.

The folder (`pub/lu/MedCPT/pubmed_embeddings` of NCBI's FTP server) holds 38 chunks, one a million PMIDs, 35,920,666
articles: 110 GB of vectors, 53 GB of texts. A chunk is three files:

* `embeds_chunk_N.npy`: float32 `(n, 768)`;
* `pmids_chunk_N.json`: a list of n PMIDs as strings, the rows' names;
* `pubmed_chunk_N.json`: one object, by PMID: `d` date (`20071115`, for that article the day PubMed had it, not the
  issue's), `t` title, `a` abstract, `m` MeSH (`humans!|rectal neoplasms*|rectal neoplasms!therapy|`: a descriptor, `!`
  and a qualifier or nothing, `*` for a major topic). Any of them may be missing or null here.

NCBI publishes no checksums, so names, counts and types are checked before anything is read. The texts are read as a
stream and the vectors through a memory map: about 100 MB for a chunk of a million. Does not know which encoder is the
library's, nor what was read before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, TypeAlias

from epicrisis.corpus.json_checks import check_value_count
from epicrisis.corpus.reader_base import (
    EncodedDocument,
    Skipped,
    check_file,
    is_folder,
    os_error_reason,
    printable_path,
)
from epicrisis.dates import last_day
from epicrisis.errors import InputError
from epicrisis.types import Document

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from epicrisis.protocols import Vectors

    Ids: TypeAlias = npt.NDArray[np.int64]

_NAME = re.compile(r"(embeds|pmids|pubmed)_chunk_(\d+)\.(npy|json)")
_CURE = "fetch it again"
_BATCH = 1024
_READ = 1 << 22
"""Characters of the text file at once."""
_LONGEST_ENTRY = 1 << 25
"""Characters after which an entry without an end is taken for a broken file."""
_LARGEST_IDS = 256 * 1024 * 1024
"""Bytes of the file of PMIDs. NCBI's have 11 MB."""
_LOOKED_AT = 100
"""Articles of the text file of which one must have a vector."""
_KEY = re.compile(r'\s*(?P<before>[{,])\s*(?P<key>"(?:[^"\\]|\\.)*")\s*:\s*')
_AFTER = re.compile(r"\s*[,}]")
_END = re.compile(r"\s*(?:\{\s*)?\}\s*")
_DATE = re.compile(r"(\d{4})-?(\d\d)?-?(\d\d)?")


@dataclass(frozen=True, slots=True)
class EmbeddingChunk:
    """One complete triple of files, checked: `rows` vectors of `dimensions` numbers, as many different PMIDs."""

    number: int
    vectors: Path
    ids: Path
    texts: Path
    rows: int
    dimensions: int


def find_chunks(folder: Path) -> list[EmbeddingChunk]:
    """The folder's chunks by number; not all 38 need be there.

    Raises InputError, before any vector is read, where a file of a chunk is missing or cut short, is not what its name
    says, or where counts or PMIDs do not agree.
    """
    if not is_folder(folder):
        raise InputError(
            f"{printable_path(folder)}: a file; name the folder that holds embeds_chunk_0.npy and its like"
        )
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise InputError(
            f"{printable_path(folder)}: {os_error_reason(error)}; check the folder's permissions"
        ) from error
    numbers = sorted({int(match[2]) for name in names if (match := _NAME.fullmatch(name))})
    if not numbers:
        raise InputError(f"{printable_path(folder)}: holds no embeds_chunk_N.npy; check the path")
    wanted = [folder / name for n in numbers for name in _names(n)]
    if missing := [path.name for path in wanted if not path.is_file()]:
        named = ", ".join(missing[:3]) + (" and others" if len(missing) > 3 else "")
        raise InputError(
            f"{printable_path(folder)}: {named} missing; fetch them, or move the incomplete chunks elsewhere"
        )
    return [_checked(folder, number) for number in numbers]


def read_folder(folder: Path) -> Iterator[EncodedDocument | Skipped]:
    """All chunks in order. Everything is checked when this is called; raises InputError as `find_chunks` does."""
    found = find_chunks(folder)
    return (item for chunk in found for item in read_chunk(chunk))


def read_chunk(chunk: EmbeddingChunk, first: int = 0) -> Iterator[EncodedDocument | Skipped]:
    """The chunk's articles with their vectors, in the text file's order; its first `first` entries are passed over.

    A document is `pubmed:<PMID>`, its text the abstract, or the title where there is none (then `abstract` in its
    metadata is false); `mesh` in its metadata is in the form of the XML reader, in NCBI's small letters. An article
    without text, without vector, with a vector that is not finite or with an unreadable entry comes as `Skipped`, those
    without text last. Raises InputError like `chunks` for a file that has changed since.
    """
    import numpy as np

    ids = _ids(chunk.ids)
    order = np.argsort(ids, kind="stable")
    met = np.zeros(len(ids), dtype=np.bool_)
    texts = printable_path(chunk.texts)
    batch: list[tuple[int, Document]] = []
    number = 0
    try:
        for number, (key, value) in enumerate(_entries(chunk.texts), 1):
            row = _row(key, ids, order)
            again = row is not None and bool(met[row])
            if row is not None:
                met[row] = True
            if number <= first:
                continue
            try:
                if row is None or again:
                    raise ValueError("stands there twice" if again else f"no vector: not in {chunk.ids.name}")
                batch.append((row, _document(int(key), value)))
            except ValueError as error:
                yield Skipped(texts, f"entry {key!a}", str(error))
            if len(batch) == _BATCH:
                yield from _encoded(chunk, batch)
                batch.clear()
    except (OSError, ValueError) as error:
        yield from _encoded(chunk, batch)
        cause = os_error_reason(error) if isinstance(error, OSError) else str(error)
        left = int(np.count_nonzero(~met))
        yield Skipped(texts, f"after entry {number}", f"the file breaks off ({cause}), {left} articles lost; {_CURE}")
        return
    yield from _encoded(chunk, batch)
    for row in np.flatnonzero(~met).tolist():
        yield Skipped(printable_path(chunk.ids), f"row {row}", f"no text: PMID {ids[row]} is not in {chunk.texts.name}")


def has_same_text(a: Document, b: Document) -> bool:
    """True when title and text of both are the same words: then a vector made of the one stands for the other."""
    return all(x.split() == y.split() for x, y in ((a.title, b.title), (a.text, b.text)))


def _names(number: int) -> tuple[str, str, str]:
    return f"embeds_chunk_{number}.npy", f"pmids_chunk_{number}.json", f"pubmed_chunk_{number}.json"


def _checked(folder: Path, number: int) -> EmbeddingChunk:
    import numpy as np

    paths = [folder / name for name in _names(number)]
    for path in paths:
        check_file(path)
    vectors, ids = _vectors(paths[0]), _ids(paths[1])
    if len(ids) != len(vectors):
        raise InputError(
            f"{printable_path(paths[0])}: {len(vectors)} vectors for the {len(ids)} PMIDs of {paths[1].name}; fetch both again"
        )
    order = np.argsort(ids, kind="stable")
    try:
        keys = [key for key, _ in zip((key for key, _ in _entries(paths[2])), range(_LOOKED_AT), strict=False)]
    except (OSError, ValueError) as error:
        raise InputError(f"{printable_path(paths[2])}: not an object of articles by PMID ({error}); {_CURE}") from error
    if len(ids) and not any(_row(key, ids, order) is not None for key in keys):
        raise InputError(
            f"{printable_path(paths[2])}: none of its first articles is in {paths[1].name}; fetch both again"
        )
    return EmbeddingChunk(number, paths[0], paths[1], paths[2], rows=len(ids), dimensions=vectors.shape[1])


_NO_ARRAY = (
    OSError,
    ValueError,
    EOFError,
    ArithmeticError,
    SyntaxError,
    TokenError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
    MemoryError,
)
"""What numpy raises for headers, which it reads as Python's literals."""


def _vectors(path: Path) -> Vectors:
    """The file's array as a memory map."""
    import numpy as np

    try:
        # Not np.load: by their first bytes it takes files of this name for archives and pickles too.
        vectors = np.lib.format.open_memmap(path, mode="r")
    except _NO_ARRAY as error:
        raise InputError(f"{printable_path(path)}: not a numpy array, or cut short; {_CURE}") from error
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype != np.float32:
        raise InputError(f"{printable_path(path)}: not float32 vectors, one a row; {_CURE}")
    return vectors


def _ids(path: Path) -> Ids:
    """The PMIDs by row, all different."""
    import numpy as np

    try:
        if path.stat().st_size > _LARGEST_IDS:
            raise ValueError("too large")
        raw = path.read_bytes()
        check_value_count(raw)
        values = json.loads(raw)
        if not isinstance(values, list) or not all(type(value) in (str, int) for value in values):
            raise ValueError("not a list of PMIDs")
        ids = np.array([_pmid(str(value)) for value in values], dtype=np.int64)
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; check the file and its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{printable_path(path)}: not a JSON list of PMIDs; {_CURE}") from error
    if len(np.unique(ids)) < len(ids):
        raise InputError(f"{printable_path(path)}: a PMID stands there twice; {_CURE}")
    return ids


def _pmid(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise ValueError("not a PMID")
    return int(text)


def _row(key: str, ids: Ids, order: Ids) -> int | None:
    """The row of a PMID; `order` sorts the ids."""
    import numpy as np

    try:
        pmid = _pmid(key)
    except ValueError:
        return None
    place = int(np.searchsorted(ids, pmid, sorter=order))
    return int(order[place]) if place < len(ids) and ids[order[place]] == pmid else None


def _encoded(chunk: EmbeddingChunk, batch: Sequence[tuple[int, Document]]) -> Iterator[EncodedDocument | Skipped]:
    import numpy as np

    # Mapped anew for each batch: pages stay in a process's memory for as long as their map is open.
    copied = np.array(_vectors(chunk.vectors)[[row for row, _ in batch]], dtype=np.float32, order="C")
    finite = np.all(np.isfinite(copied), axis=1)
    for n, ((row, document), vector) in enumerate(zip(batch, copied, strict=True)):
        if finite[n]:
            yield EncodedDocument(document, vector)
        else:
            yield Skipped(
                printable_path(chunk.vectors), f"row {row}", f"the vector of {document.id} is not finite; {_CURE}"
            )


def _document(pmid: int, value: Any) -> Document:
    """Raises ValueError with the reason."""
    from epicrisis.corpus.json_checks import find_json_fault

    if wrong := find_json_fault(value):
        raise ValueError(wrong)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004
    fields = {name: value.get(name) or "" for name in "dtam"}
    for name, field in fields.items():
        if not isinstance(field, str):
            raise ValueError(f"{name}: not a text")  # noqa: TRY004
    title, abstract = fields["t"].strip(), fields["a"].strip()
    if not (title or abstract):
        raise ValueError("no text: neither title nor abstract")
    date = _date(fields["d"])
    metadata: dict[str, Any] = {} if abstract else {"abstract": False}
    if mesh := _mesh(fields["m"]):
        metadata["mesh"] = mesh
    if fields["d"] and date is None:
        metadata["date_as_given"] = fields["d"]
    return Document(
        id=f"pubmed:{pmid}", text=abstract or title, title=title, source="PubMed", date=date, metadata=metadata
    )


def _date(given: str) -> str | None:
    """`20071115` as `2007-11-15`, less where month or day are missing or 00; `None` where it is no date."""
    if not (match := _DATE.fullmatch(given)):
        return None
    parts = [match[1]]
    for part in (match[2], match[3]):
        if part in (None, "00"):
            break
        parts.append(part)
    date = "-".join(parts)
    try:
        last_day(date)
    except ValueError:
        return None
    return date


def _mesh(given: str) -> list[str]:
    """`humans`, `rectal neoplasms*`, `rectal neoplasms/therapy`."""
    return [name.replace("!", "/").removesuffix("/") for part in given.split("|") if (name := part.strip())]


def _entries(path: Path) -> Iterator[tuple[str, Any]]:
    """The members of the file's one object, in order, a few megabytes in memory.

    Raises OSError, or ValueError with a reason that repeats nothing of the file, at the first that cannot be read.
    """
    decode = json.JSONDecoder().raw_decode
    with path.open(encoding="utf-8-sig") as file:
        text, at, before, more = "", 0, "{", True
        while True:
            key = _KEY.match(text, at)
            try:
                if key is None or key["before"] != before:
                    raise ValueError("not JSON")
                value, end = decode(text, key.end())
                if not _AFTER.match(text, end):
                    raise ValueError("not JSON")
            except (ValueError, RecursionError) as error:
                if not more and _END.fullmatch(text, at) and (before == "{") == ("{" in text[at:]):
                    return
                if not more or len(text) - at > _LONGEST_ENTRY:
                    raise ValueError("not JSON, or cut short") from error
                read_chunk = _some(file)
                text, at, more = text[at:] + read_chunk, 0, bool(read_chunk)
                continue
            yield json.loads(key["key"]), value
            at, before = end, ","


def _some(file: Any) -> str:
    try:
        return str(file.read(_READ))
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
