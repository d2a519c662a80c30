"""Rows per second and memory of reading MIMIC's labevents as facts, with generated rows.

    python benchmarks/fact_tables.py [ROWS]

Rows are ordered by patient, or shuffled. Documents are built and discarded; encoding and storing are not measured.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from epicrisis.core.types import Document
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning

HEADER = (
    "labevent_id,subject_id,hadm_id,specimen_id,itemid,order_provider_id,charttime,storetime,value,valuenum,valueuom,"
    "ref_range_lower,ref_range_upper,flag,priority,comments\n"
)
ROWS_OF_PATIENT = 500


def write_rows(path: Path, rows: int, shuffled: bool) -> None:
    """Write rows of generated results, 20 at each time of a patient."""
    chance = random.Random(7)
    lines = []
    for number in range(rows):
        patient = 10_000_000 + number // ROWS_OF_PATIENT
        day = 1 + number % ROWS_OF_PATIENT // 20
        time_text = f"2150-03-{day:02} 08:10:00"
        value = f"{chance.uniform(0.5, 200):.1f}"
        item = 50_800 + number % 20
        lines.append(
            f"{number},{patient},{patient + 10_000_000},{number // 20},{item},P1,{time_text},{time_text},"
            f"{value},{value},"
            'mg/dL,0.4,1.1,abnormal,ROUTINE,"___"\n'
        )
    if shuffled:
        chance.shuffle(lines)
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER)
        file.writelines(lines)


def measure(path: Path) -> None:
    """Read the file and print the figures."""
    began, processor = time.monotonic(), time.process_time()
    documents = facts = 0
    for item in read_sources([path], cleaning=NoteCleaning()):
        if isinstance(item, Document):
            documents += 1
            facts += item.text.count("\n") + 1
    seconds, cpu = time.monotonic() - began, time.process_time() - processor
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{facts:,} facts in {documents:,} documents: {facts / seconds:,.0f} rows/s, {cpu:.0f} s CPU, {memory:.0f} MB"
    )


def main() -> None:
    """Write the file, and read it in a process of its own."""
    if len(sys.argv) > 2:
        measure(Path(sys.argv[2]))
        return
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for shuffled in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "labevents.csv")
            write_rows(path, rows, shuffled)
            print("shuffled" if shuffled else "by patient", f"{path.stat().st_size / 1e6:.0f} MB", end=": ", flush=True)
            subprocess.run([sys.executable, __file__, "", str(path)], check=True)


if __name__ == "__main__":
    main()
