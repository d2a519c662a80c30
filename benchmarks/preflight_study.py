"""Can it be foreseen that the key document is lost in the middle? All 1,118 PubMedQA and BioASQ questions of MIRAGE.

    EPICRISIS_DATA=... python benchmarks/preflight_study.py record LIBRARY FILE.jsonl [--by hybrid] [--guard ...]
    python benchmarks/preflight_study.py tables FILE.jsonl [--recall 0.9261] [--hidden HIDDEN.jsonl] [--json OUT.json]

LIBRARY is one that `literature_retrieval.py bioasq` made, with titles or without. No chat model is asked. Recording can
be broken off and goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.load import load as load_set
from epicrisis.evaluation.experiments.calibration import calibrate, calibration_table, signals_table
from epicrisis.evaluation.experiments.preflight import (
    ALWAYS,
    NEVER,
    PAPERS_RULE,
    Rule,
    curve_table,
    definitions,
    guards_table,
    places_table,
    rules_table,
)
from epicrisis.evaluation.experiments.rankings import GUARDS, RankingFile, open_rankers, read_rankings, record
from epicrisis.evaluation.tables.showing import markdown
from epicrisis.plain import to_json
from epicrisis.retrieval.signals import Signal
from epicrisis.settings import load

SETS = ("mirage/pubmedqa", "mirage/bioasq")
RULES = (PAPERS_RULE, Rule(Signal("overlap", 3), 0.2, depth=64), Rule(Signal("overlap", 5), 0.2), ALWAYS, NEVER)


def main() -> None:
    """Records, or prints what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("library", type=Path)
    recording.add_argument("file", type=Path)
    recording.add_argument("--by", choices=("dense", "bm25", "hybrid"), default="dense")
    recording.add_argument("--guard", choices=GUARDS, default="none")
    recording.add_argument("--threads", type=int)
    showing = commands.add_parser("tables")
    showing.add_argument("file", type=Path)
    showing.add_argument("-k", type=int, default=16)
    showing.add_argument("--depth", type=int, default=16)
    showing.add_argument("--recall", type=float, help="of the fitted rule; default: that of the papers' rule")
    showing.add_argument("--hidden", type=Path, help="a file recorded with --guard source-hidden, to stand beside")
    showing.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "record":
        record_all(arguments)
    else:
        show(arguments)


def record_all(arguments: argparse.Namespace) -> None:
    """The rankings of every question."""
    settings = load({"by": arguments.by, "threads": arguments.threads})
    data = Path(os.environ["EPICRISIS_DATA"]) / "mirage"
    undated = 0
    with open_rankers(settings, arguments.library, arguments.guard) as (rankers, recipe):
        file = RankingFile(arguments.file, recipe)
        for name in SETS:
            questions = load_set(name, settings.home, data).questions
            for _, each in record(questions, name, rankers, file, arguments.guard):
                undated += each is None
            print(f"{name}: {len(questions)} questions, {len(file.recorded)} recorded in all, {undated} without a date")


def show(arguments: argparse.Namespace) -> None:
    """Every table of the experiment."""
    recipe, recorded = read_rankings(arguments.file)
    source = ", ".join(f"{name} {recipe[name]}" for name in ("encoder", "passages", "by", "guard", "reranker"))
    tables = [places_table(recorded, arguments.k, source), rules_table(recorded, RULES, arguments.k, source)]
    for definition in definitions(arguments.k)[:2]:
        try:
            fitted = calibrate(recorded, definition, arguments.recall, depth=arguments.depth)
        except InputError as error:
            print(f"no rule fitted ({definition.name}): {error}\n")
            continue
        tables.append(signals_table(recorded, definition, arguments.depth, source))
        tables.append(calibration_table(fitted, arguments.k, source=source))
        tables.append(curve_table(recorded, Signal("overlap", 3), definition, arguments.depth, source))
    if arguments.hidden is not None:
        arms = {"none": recorded, "source-hidden": read_rankings(arguments.hidden)[1]}
        tables.append(guards_table(arms, k=arguments.k, source=source))
    for table in tables:
        print(markdown(table))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(to_json(tables), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
