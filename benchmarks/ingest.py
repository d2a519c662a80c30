"""What the library costs beside encoding, on the 1,000 abstracts of PubMedQA with the real encoder.

Prints one line a figure. The rest may cost at most 15 % of encoding alone. Needs EPICRISIS_DATA and the pulled model
`minilm`.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Document, Passage, Scope
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents
from epicrisis.library.write.ingest_batches import IngestReport
from epicrisis.models.encoders import load_encoder
from epicrisis.settings.configuration import load_settings

OVERLAP = 32


def ingest(folder: Path, documents: list[Document], encoder: Encoder) -> tuple[IngestReport, list[Passage], int]:
    """The report, the passages it made, and the bytes on disk."""
    with LibraryStore.create(
        folder,
        encoder_fingerprint=encoder.fingerprint,
        encoder_name="minilm",
        dimensions=encoder.dimensions,
        max_tokens=encoder.max_tokens,
        overlap=OVERLAP,
    ) as library:
        report = add_documents(library, documents, encoder)
        passages = [stored.passage for batch in library._table.batches() for stored in batch]
        vector = encoder.encode_queries(["warm"])[0]
        library.search_vectors(vector, 10, Scope())
        return report, passages, sum(library.info().bytes_on_disk.values())


def encoding(passages: list[Passage], encoder: Encoder) -> float:
    """Seconds to encode them in one call, as fast as this encoder goes."""
    began = time.monotonic()
    encoder.encode_passages([(passage.title, passage.text) for passage in passages])
    return time.monotonic() - began


def main() -> None:
    source = Path(os.environ["EPICRISIS_DATA"]) / "pubmedqa" / "ori_pqal.json"
    documents = [item for item in read_sources([source], "pubmedqa") if isinstance(item, Document)]
    encoder = load_encoder("minilm", load_settings().home.expanduser())
    with tempfile.TemporaryDirectory() as scratch:
        report, passages, size = ingest(Path(scratch) / "library", documents, encoder)
    alone = encoding(passages, encoder)
    rest = report.seconds - report.encode_seconds
    print(f"{report.added} documents, {report.passages} passages, {size / 1e6:.1f} MB on disk")
    print(
        f"adding: {report.seconds:.2f} s, of them {report.encode_seconds:.2f} s encoding and {rest:.2f} s all the rest"
    )
    print(f"encoding alone, in one call: {alone:.2f} s")
    print(f"adding / encoding alone: {report.seconds / alone:.3f} (at most 1.15; needs a quiet machine)")
    print(f"all the rest / encoding, within the same run: {rest / report.encode_seconds:.3f} (at most 0.15)")


if __name__ == "__main__":
    main()
