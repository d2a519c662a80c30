"""Read NCBI's precomputed MedCPT embeddings: PubMed's articles with the vectors of their titles and abstracts.

The folder (`pub/lu/MedCPT/pubmed_embeddings` of NCBI's FTP server) has 38 chunks, one for each million PMIDs, with
35,920,666 articles: 110 GB of vectors, 53 GB of texts. A chunk is three files:

* `embeds_chunk_N.npy`: float32 `(n, 768)`;
* `pmids_chunk_N.json`: a list of n PMIDs as strings, one for each row;
* `pubmed_chunk_N.json`: an object by PMID with `d` date (`20071115`, the day PubMed received the article, not the
  issue's), `t` title, `a` abstract, `m` MeSH (`humans!|rectal neoplasms*|rectal neoplasms!therapy|`: a descriptor, `!`
  and a qualifier or nothing, `*` for a major topic). Any of them may be missing or null.

NCBI publishes no checksums, so names, counts and types are checked before anything is read. Texts are read as a stream
and vectors through a memory map: about 100 MB of memory for a chunk of a million.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, TypeAlias

from epicrisis.core.dates import last_day
from epicrisis.core.types import Document
from epicrisis.corpus.base.jsonl import check_value_count, find_json_fault
from epicrisis.corpus.base.reader_base import (
    EncodedDocument,
    Skipped,
    check_file,
    is_folder,
    is_number,
    os_error_reason,
    path_error,
    skip,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from epicrisis.core.protocols import Vectors

    Ids: TypeAlias = npt.NDArray[np.int64]

_FILES = ("embeds_chunk_{}.npy", "pmids_chunk_{}.json", "pubmed_chunk_{}.json")
_FILE_NAME = re.compile(r"(embeds|pmids|pubmed)_chunk_(\d+)\.(npy|json)")
_CURE = "fetch it again"
_BATCH = 1024
_PIECE_CHARACTERS = 1 << 22
_MAX_ENTRY_CHARACTERS = 1 << 25
"""Characters without the end of an entry after which the file is taken to be broken."""
_MAX_IDS_BYTES = 256 * 1024 * 1024
"""Limit of the file of PMIDs. NCBI's have 11 MB."""
_SAMPLE = 100
"""First articles of the text file, at least one of which must have a vector."""
_ARRAY_ERRORS = (
    *(OSError, ValueError, EOFError, ArithmeticError, SyntaxError, TokenError, TypeError, LookupError),
    *(AttributeError, RecursionError, MemoryError),
)
"""Exceptions of numpy for broken headers, which it reads as Python literals."""
_KEY = re.compile(r'\s*(?P<before>[{,])\s*(?P<key>"(?:[^"\\]|\\.)*")\s*:\s*')
_AFTER = re.compile(r"\s*[,}]")
_END = re.compile(r"\s*(?:\{\s*)?\}\s*")
_DATE = re.compile(r"(\d{4})-?(\d\d)?-?(\d\d)?")


@dataclass(frozen=True, slots=True)
class EmbeddingChunk:
    """One complete, checked triple of files: `rows` vectors of `dimensions` numbers, as many different PMIDs."""

    number: int
    vectors: Path
    ids: Path
    texts: Path
    rows: int
    dimensions: int


def find_chunks(folder: Path) -> list[EmbeddingChunk]:
    """Return the folder's chunks by number; some of the 38 may be absent.

    Raises InputError, before any vector is read, if a file is missing, truncated or not as its name says.
    """
    if not is_folder(folder):
        raise path_error(folder, "a file; give the folder with embeds_chunk_0.npy and the other chunks")
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise path_error(folder, f"{os_error_reason(error)}; check the folder's permissions") from error
    matches = filter(None, (_FILE_NAME.fullmatch(name) for name in names))
    numbers = sorted({int(match[2]) for match in matches})
    if not numbers:
        raise path_error(folder, "holds no embeds_chunk_N.npy; check the path")
    expected = chain.from_iterable([file.format(number) for file in _FILES] for number in numbers)
    missing = [name for name in expected if not (folder / name).is_file()]
    if missing:
        names_text = ", ".join(missing[:3]) + (" and others" if len(missing) > 3 else "")
        raise path_error(folder, f"{names_text} missing; fetch them, or move the incomplete chunks elsewhere")
    return [_check_chunk(folder, number) for number in numbers]


def read_chunk(chunk: EmbeddingChunk) -> Iterator[EncodedDocument | Skipped]:
    """Yield the chunk's articles with their vectors in the text file's order.

    A document is `pubmed:<PMID>`; its text is the abstract, or the title if there is none (`"abstract": false` in the
    metadata). An article without text, without vector, with a vector that is not finite or with an unreadable entry is
    `Skipped`, those without text last. Raises InputError as `find_chunks` does, if a file has changed since.
    """
    import numpy as np

    ids = _read_ids(chunk.ids)
    order = np.argsort(ids, kind="stable")
    has_text = np.zeros(len(ids), dtype=np.bool_)
    batch: list[tuple[int, Document]] = []
    number = 0
    try:
        for key, value in _read_entries(chunk.texts):
            number += 1
            row = _find_row(key, ids, order)
            is_repeated = row is not None and bool(has_text[row])
            if row is not None:
                has_text[row] = True
            try:
                if is_repeated:
                    raise ValueError("occurs twice")
                if row is None:
                    raise ValueError(f"no vector: not in {chunk.ids.name}")
                batch.append((row, _build_document(int(key), value)))
            except ValueError as error:
                yield skip(chunk.texts, f"entry {key!a}", str(error))
            if len(batch) == _BATCH:
                yield from _add_vectors(chunk, batch)
                batch.clear()
    except (OSError, ValueError) as error:
        yield from _add_vectors(chunk, batch)
        cause = os_error_reason(error) if isinstance(error, OSError) else str(error)
        lost_count = int(np.count_nonzero(~has_text))
        reason = f"the file breaks off ({cause}), {lost_count} articles lost; {_CURE}"
        yield skip(chunk.texts, f"after entry {number}", reason)
        return
    yield from _add_vectors(chunk, batch)
    for row in np.flatnonzero(~has_text).tolist():
        yield skip(chunk.ids, f"row {row}", f"no text: PMID {ids[row]} is not in {chunk.texts.name}")


def _check_chunk(folder: Path, number: int) -> EmbeddingChunk:
    import numpy as np

    paths = [folder / file.format(number) for file in _FILES]
    for path in paths:
        check_file(path)
    vectors_path, ids_path, texts_path = paths
    vectors, ids = _open_vectors(vectors_path), _read_ids(ids_path)
    if len(ids) != len(vectors):
        counts = f"{len(vectors)} vectors for the {len(ids)} PMIDs of {ids_path.name}"
        raise path_error(vectors_path, f"{counts}; fetch both again")
    order = np.argsort(ids, kind="stable")
    try:
        entries = list(islice(_read_entries(texts_path), _SAMPLE))
    except (OSError, ValueError) as error:
        raise path_error(texts_path, f"not an object of articles by PMID ({error}); {_CURE}") from error
    if len(ids) and all(_find_row(key, ids, order) is None for key, _ in entries):
        raise path_error(texts_path, f"none of its first articles is in {ids_path.name}; fetch both again")
    return EmbeddingChunk(number, vectors_path, ids_path, texts_path, rows=len(ids), dimensions=vectors.shape[1])


def _open_vectors(path: Path) -> Vectors:
    import numpy as np

    try:
        # Not np.load, which by their first bytes also takes files of this name for archives and pickles.
        vectors = np.lib.format.open_memmap(path, mode="r")
    except _ARRAY_ERRORS as error:
        raise path_error(path, f"not a numpy array, or truncated; {_CURE}") from error
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype != np.float32:
        raise path_error(path, f"not float32 vectors, one a row; {_CURE}")
    return vectors


def _read_ids(path: Path) -> Ids:
    import numpy as np

    try:
        if path.stat().st_size > _MAX_IDS_BYTES:
            raise ValueError("too large")
        raw = path.read_bytes()
        check_value_count(raw)
        values = json.loads(raw)
        if not isinstance(values, list) or not {str, int}.issuperset(map(type, values)):
            raise ValueError("not a list of PMIDs")
        if not all(map(_is_pmid, map(str, values))):
            raise ValueError("not a PMID")
        ids = np.array(list(map(int, values)), dtype=np.int64)
    except OSError as error:
        raise path_error(path, f"{os_error_reason(error)}; check the file and its permissions") from error
    except (ValueError, RecursionError) as error:
        raise path_error(path, f"not a JSON list of PMIDs; {_CURE}") from error
    if len(np.unique(ids)) < len(ids):
        raise path_error(path, f"a PMID occurs twice; {_CURE}")
    return ids


def _find_row(key: str, ids: Ids, order: Ids) -> int | None:
    """Return the row of a PMID, or None; `order` sorts the ids."""
    import numpy as np

    if not _is_pmid(key):
        return None
    pmid = int(key)
    place = int(np.searchsorted(ids, pmid, sorter=order))
    return int(order[place]) if place < len(ids) and ids[order[place]] == pmid else None


def _is_pmid(text: str) -> bool:
    return is_number(text) and len(text) <= 12


def _add_vectors(chunk: EmbeddingChunk, batch: Sequence[tuple[int, Document]]) -> Iterator[EncodedDocument | Skipped]:
    import numpy as np

    # A new map for each batch: pages stay in a process's memory while their map is open.
    vectors = np.array(_open_vectors(chunk.vectors)[[row for row, _ in batch]], dtype=np.float32, order="C")
    is_finite = np.all(np.isfinite(vectors), axis=1)
    for index, ((row, document), vector) in enumerate(zip(batch, vectors, strict=True)):
        if is_finite[index]:
            yield EncodedDocument(document, vector)
        else:
            yield skip(chunk.vectors, f"row {row}", f"the vector of {document.id} is not finite; {_CURE}")


def _build_document(pmid: int, value: Any) -> Document:
    if fault := find_json_fault(value):
        raise ValueError(fault)
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004
    fields = {name: value.get(name) or "" for name in "dtam"}
    for name, field in fields.items():
        if not isinstance(field, str):
            raise ValueError(f"{name}: not a text")  # noqa: TRY004
    title, abstract = fields["t"].strip(), fields["a"].strip()
    if not (title or abstract):
        raise ValueError("no text: neither title nor abstract")
    date = _parse_date(fields["d"])
    metadata: dict[str, Any] = {} if abstract else {"abstract": False}
    # Headings in the form `humans`, `rectal neoplasms*`, `rectal neoplasms/therapy`.
    names = filter(None, map(str.strip, fields["m"].split("|")))
    if mesh := [name.replace("!", "/").removesuffix("/") for name in names]:
        metadata["mesh"] = mesh
    if fields["d"] and date is None:
        metadata["date_as_given"] = fields["d"]
    return Document(
        id=f"pubmed:{pmid}", text=abstract or title, title=title, source="PubMed", date=date, metadata=metadata
    )


def _parse_date(text: str) -> str | None:
    """Return `2007-11-15` for `20071115`, less if month or day are missing or 00, or None for any other text."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    date = match[1]
    for part in (match[2], match[3]):
        if part in (None, "00"):
            break
        date += f"-{part}"
    try:
        last_day(date)
    except ValueError:
        return None
    return date


def _read_entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the members of the file's one object in order. Raises OSError, or ValueError with the reason."""
    decode = json.JSONDecoder().raw_decode
    with path.open(encoding="utf-8-sig") as file:
        text, position, separator, has_more = "", 0, "{", True
        while True:
            key = _KEY.match(text, position)
            try:
                if key is None or key["before"] != separator:
                    raise ValueError("not JSON")
                value, end = decode(text, key.end())
                if not _AFTER.match(text, end):
                    raise ValueError("not JSON")
            except (ValueError, RecursionError) as error:
                if not has_more and _END.fullmatch(text, position) and (separator == "{") == ("{" in text[position:]):
                    return
                if not has_more or len(text) - position > _MAX_ENTRY_CHARACTERS:
                    raise ValueError("not JSON, or truncated") from error
                try:
                    piece = file.read(_PIECE_CHARACTERS)
                except UnicodeDecodeError as damage:
                    raise ValueError("not UTF-8") from damage
                text, position, has_more = text[position:] + piece, 0, bool(piece)
                continue
            yield json.loads(key["key"]), value
            position, separator = end, ","
