"""Test damaged runs: one line that names the file, exit code 2, and no loss of saved records."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.program import app
from epicrisis.core.answers import Answer, Citation, ModelCalled, PartialAnswer, Quotation, Retrieved, Usage
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.types import EvidenceSpan, Hit, Passage, Question, Ranking
from epicrisis.evaluation.experiments.preflight import rankings_path
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings, RankingStore
from epicrisis.evaluation.runs.run_folder import MANIFEST, RECORDS, Run, RunPlan
from epicrisis.pipeline.recording.case import Case
from tests.support.run_folders import recipe

N = 6
PATIENT = "Kanarienvogel"
"""Stands in every question; no message may quote it."""

QUESTIONS = tuple(
    Question(
        f"Does it help {PATIENT}, {i}?",
        options={"A": "yes", "B": "no"},
        form="choice",
        id=str(i),
        gold="AB"[i % 2],
        gold_documents=(f"d{i}",),
        evidence=(EvidenceSpan(f"d{i}", 0, 9),),
    )
    for i in range(N)
)
OPEN = tuple(Question(f"What helps {PATIENT}, {i}?", id=str(i), gold="Rest.") for i in range(N))


def make_answer(question: Question, arm: str) -> Answer:
    """Return an answer with a ranking, parts with quotations, calls and a citation."""
    passage = Passage(
        id=f"d{question.id}#0",
        document_id=f"d{question.id}",
        ordinal=0,
        start=0,
        end=9,
        text="It helps.",
        date="2015-06",
    )
    usage = Usage(calls=1, prompt_tokens=90, completion_tokens=10, seconds=1.0)
    called = ModelCalled(
        stage="map-1",
        model="tiny",
        prompt_sha256="0" * 64,
        template="map@1",
        seed=0,
        sample=0,
        finish_reason="stop",
        usage=usage,
        at=1.0,
    )
    quotation = Quotation(passage.id, "It helps", 0, 8)
    cited = Citation(
        number=1,
        passage_id=passage.id,
        document_id=passage.document_id,
        title="",
        source="",
        date="2015-06",
        start=0,
        end=8,
        quotation="It helps",
        verified=True,
    )
    part = PartialAnswer(
        partition=0,
        passages=(passage.id,),
        state="relevant",
        text="Yes.",
        choice="A" if question.options else None,
        quotations=(quotation,),
    )
    return Answer(
        question=question,
        strategy=arm,
        state="answered",
        text="Yes [1].",
        choice="A" if question.options else None,
        citations=(cited,),
        partials=(part,),
        usage=usage,
        trace=(Retrieved(Ranking((Hit(passage, 1.0, 0),), "dense", {"k": 1})), called),
    )


def make_cases(name: str) -> tuple[Case, ...]:
    sample = OPEN if name == "evaluate" else QUESTIONS
    conditions: list[dict[str, Any]] = [{}]
    if name == "positions":
        conditions = [
            {"arm": arm, "k": 4, "place": p, "repeat": 0} for arm in ("rag", "brief-context") for p in (0, 99)
        ]
    return tuple(Case(question, condition) for question in sample for condition in conditions)


def make_plan(name: str) -> RunPlan:
    arguments = (
        {"arms": ["rag", "brief-context"], "protocol": "corrected"} if name == "positions" else {"guard": "none"}
    )
    return RunPlan(
        name, arguments, recipe(), {"name": "own", "sha256": "5" * 64, "n": N, "licence": ""}, {"how": "all"}, 0
    )


def resume_run(folder: Path, name: str) -> None:
    """Ask what has no record yet, as the command does."""
    with Run.open(folder, make_plan(name), make_cases(name)) as opened:
        for case in make_cases(name):
            if not opened.records.is_done(case.key):
                opened.records.append_answer(
                    make_answer(case.question, str(case.condition.get("arm", "rag"))), case.condition
                )


@pytest.fixture(scope="module")
def undamaged_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write three undamaged runs: an experiment, open answers with their measures, and rankings."""
    result = tmp_path_factory.mktemp("whole")
    for name in ("positions", "evaluate"):
        resume_run(result / name, name)
    assert run("grade", "run", result / "evaluate", "--no-meteor", "--json").exit_code == 0
    file = RankingStore(
        rankings_path(result / "preflight", "none"), {"passages": 9, "encoder": "minilm", "by": "dense"}
    )
    for i in range(N):
        read = tuple((f"d{(i + n) % N}#0", 1 / (n + 1)) for n in range(N))
        file.append_rankings(
            QuestionRankings(
                key=f"q{i}",
                dataset="own",
                dense=read,
                bm25=read,
                reranked=None,
                read=tuple(id_ for id_, _ in read),
                gold=(f"d{i}",),
                held=(f"d{i}",),
            )
        )
    return result


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def list_commands(folder: Path, undamaged_runs: Path) -> Iterator[tuple[object, ...]]:
    yield "report", folder, "-o", folder.parent / "page.html", "--no-plots"
    yield "compare", undamaged_runs / "positions", folder
    yield "grade", "run", folder, "--no-meteor", "--json"


def check_ends_well(folder: Path, undamaged_runs: Path) -> None:
    """Run each command on the folder."""
    for command in list_commands(folder, undamaged_runs):
        result = run(*command)
        assert isinstance(result.exception, SystemExit | None), (command[0], result.exception)
        assert result.exit_code in (0, 2), command[0]
        if result.exit_code == 2:
            assert result.stderr.startswith("epicrisis: ")
            assert result.stderr.count("\n") == 1, result.stderr
        assert PATIENT not in result.stderr


def catch_refusal(work: Callable[[], None]) -> EpicrisisError | None:
    """Return the error that the work ends with."""
    try:
        work()
    except EpicrisisError as error:
        return error
    return None


Damage = Callable[[Path], object]


def _change_text(file: str, change: Callable[[str], str]) -> Damage:
    return lambda folder: (folder / file).write_text(change((folder / file).read_text("utf-8")), "utf-8")


def _change_json(change: Callable[[Any], None], file: str = MANIFEST) -> Damage:
    def damage(folder: Path) -> None:
        first, _, rest = (folder / file).read_text("utf-8").partition("\n" if file == RECORDS else "\0")
        value = json.loads(first)
        change(value)
        (folder / file).write_text(json.dumps(value) + "\n" + rest, "utf-8")

    return damage


def _replace_by_folder(file: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).mkdir()

    return damage


DAMAGES: dict[str, Damage] = {
    "no manifest": lambda folder: (folder / MANIFEST).unlink(),
    "no records": lambda folder: (folder / RECORDS).unlink(),
    "empty manifest": _change_text(MANIFEST, lambda _: ""),
    "half a manifest": _change_text(MANIFEST, lambda text: text[: len(text) // 2]),
    "manifest of 100,000 brackets": _change_text(MANIFEST, lambda _: "[" * 100_000),
    "folder for a manifest": _replace_by_folder(MANIFEST),
    "folder for records": _replace_by_folder(RECORDS),
    "manifest of another format": _change_json(lambda told: told.update(format=99)),
    "manifest without a plan": _change_json(lambda told: told.pop("plan")),
    "manifest without usage's numbers": _change_json(lambda told: told.update(usage={"calls": "many"})),
    "manifest with a session that is none": _change_json(lambda told: told.update(sessions=[{"taken": 3}])),
    "manifest with models that are none": _change_json(
        lambda told: told["plan"]["recipe"].update(models={"writer": 3})
    ),
    "manifest of an unnamed set": _change_json(lambda told: told["plan"].update(dataset={})),
    "empty line": _change_text(RECORDS, lambda text: text.replace("\n", "\n[]\n", 1)),
    "binary line": lambda folder: (folder / RECORDS).write_bytes(b"\xff\x00\n" + (folder / RECORDS).read_bytes()),
    "number that overflows": _change_json(lambda told: told["answer"]["usage"].update(calls=10**400), RECORDS),
    "number that is none": _change_json(lambda told: told["answer"]["usage"].update(seconds=float("nan")), RECORDS),
    "place of a wrong type": _change_json(lambda told: told["condition"].update(place="first"), RECORDS),
    "record without its condition": _change_json(lambda told: told.pop("condition"), RECORDS),
    "record without its trace": _change_json(lambda told: told["answer"].pop("trace"), RECORDS),
    "gold letter that is a number": _change_json(lambda told: told["answer"]["question"].update(gold=3), RECORDS),
    "quotations that are a text": _change_json(
        lambda told: told["answer"]["partials"][0].update(quotations="x"), RECORDS
    ),
    "hits without passages": _change_json(
        lambda told: told["answer"]["trace"][0]["ranking"].update(hits=[{"rank": 0, "score": 1.0}]), RECORDS
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_run_is_refused_with_one_line(damage: str, undamaged_runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(undamaged_runs / "positions", tmp_path / "run")
    DAMAGES[damage](folder)
    (folder / ".run.lock").unlink(missing_ok=True)
    for command in list_commands(folder, undamaged_runs):
        result = run(*command)
        # `grade run` reads no manifest and finds nothing to measure here.
        assert isinstance(result.exception, SystemExit), command[0]
        assert result.exit_code == 2, command[0]
        assert (result.stderr.startswith("epicrisis: "), result.stderr.count("\n")) == (True, 1)
        assert PATIENT not in result.stderr


@pytest.mark.parametrize("damage", DAMAGES)
def test_resuming_damaged_run_keeps_saved_records(damage: str, undamaged_runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(undamaged_runs / "positions", tmp_path / "run")
    DAMAGES[damage](folder)
    records = folder / RECORDS
    before = records.read_bytes() if records.is_file() else b""
    refusal = catch_refusal(lambda: resume_run(folder, "positions"))
    assert refusal is None or refusal.exit_code == 2
    assert "\n" not in str(refusal)
    assert PATIENT not in str(refusal)
    if records.is_file():
        assert records.read_bytes().startswith(before)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["preflight/rankings-none.jsonl", "evaluate/measures/words.jsonl"])
@pytest.mark.parametrize(
    "text", ["{}\n", "\xff\n", '{"recipe": {}, "key": 3}\n', '{"measure": {"values": {"a": "1"}}}\n']
)
def test_damaged_rankings_and_measures_are_refused_with_one_line(
    file: str, text: str, undamaged_runs: Path, tmp_path: Path
) -> None:
    name, _, path = file.partition("/")
    folder = shutil.copytree(undamaged_runs / name, tmp_path / "run")
    (folder / path).write_bytes((folder / path).read_bytes() + text.encode("latin-1"))
    check_ends_well(folder, undamaged_runs)
    reading = ("report", folder, "--json") if name == "preflight" else ("grade", "run", folder, "--no-meteor", "--json")
    assert run(*reading).exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "said"), [("magic", "does not know: update it"), ("conflicts", "")])
def test_records_under_manifest_of_other_experiment_raise_no_traceback(
    name: str, said: str, undamaged_runs: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(undamaged_runs / "positions", tmp_path / "run")
    _change_json(lambda told: told["plan"].update(name=name))(folder)
    check_ends_well(folder, undamaged_runs)
    assert said in run("report", folder, "--json").stderr


VALUES: tuple[Any, ...] = (
    None,
    -1,
    True,
    "x",
    "",
    [],
    {},
    [1],
    {"a": 1},
    1e308,
    10**25,
    float("nan"),
    "\ud800",
    -5.5,
    [None],
)


def _list_paths(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for name, item in inner:
        yield from _list_paths(item, (*place, name))


def _change_value(value: Any, dice: random.Random) -> Any:
    """Return the value with one field at any depth deleted or replaced."""
    *folders, name = dice.choice(list(_list_paths(value)))
    inner = value
    for folder in folders:
        inner = inner[folder]
    if dice.random() < 0.3:
        del inner[name]
    else:
        inner[name] = dice.choice(VALUES)
    return value


def damage_randomly(path: Path, dice: random.Random) -> None:
    content = path.read_bytes()
    how = dice.randrange(4)
    if how == 0:
        path.write_bytes(content[: dice.randrange(len(content))])
    elif how == 1:
        flipped = bytearray(content)
        for _ in range(dice.choice((1, 3, 50))):
            flipped[dice.randrange(len(flipped))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
    elif path.suffix == ".json":
        path.write_text(json.dumps(_change_value(json.loads(content), dice)), "utf-8")
    else:
        lines = content.decode("utf-8").split("\n")[:-1]
        i = dice.randrange(len(lines))
        lines[i] = json.dumps(_change_value(json.loads(lines[i]), dice))
        path.write_text("\n".join(lines) + "\n", "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_randomly_damaged_run_raises_no_traceback(seed: int, undamaged_runs: Path, tmp_path: Path) -> None:
    dice = random.Random(seed)
    folder = shutil.copytree(undamaged_runs / dice.choice(("positions", "evaluate", "preflight")), tmp_path / "run")
    files = [path for path in sorted(folder.rglob("*.json*")) if path.stat().st_size and path.name[0] != "."]
    damage_randomly(dice.choice(files), dice)
    check_ends_well(folder, undamaged_runs)
