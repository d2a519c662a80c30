"""Blind reviews of real runs: nothing tells the answers apart, no click is lost, `epicrisis grade` reads the files."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app as program
from epicrisis.core.answers import Confidence, Usage
from epicrisis.core.types import Document
from epicrisis.evaluation.grading.human_verdicts import PreferredAnswer
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.item_folder import ItemFolder
from epicrisis.server.page.rendering import render
from epicrisis.server.runs import review_routes
from epicrisis.server.runs.review_answers import blind_answer
from epicrisis.server.runs.review_view import PLACE_WORDS, TurnView, view_turn
from epicrisis.server.runs.reviews import (
    VERDICTS,
    BlindReview,
    ReviewState,
    ReviewStore,
    ReviewVerdict,
)
from epicrisis.server.state.state import REVIEWS_FOLDER
from tests.support.pages import Page
from tests.support.reviews import (
    OURS,
    RIVAL,
    SECRETS,
    STRATEGIES,
    TEXTS,
    WORDS,
    Reviewer,
    add_users,
    answer_run,
    find_button,
    find_leaks,
    list_questions,
    make_app,
    make_two_runs,
    open_review,
    read_halves,
)
from tests.support.run_folders import QUESTIONS, folder
from tests.support.servers import read_access_log

CHOICES: tuple[PreferredAnswer, ...] = ("1", "tie", "2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of six questions, made by two strategies over a real library."""
    return make_two_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def local(tmp_path: Path, runs: Path) -> Reviewer:
    """Everybody on a server without users."""
    return Reviewer(make_app(tmp_path, runs))


def find_ours(page: Page) -> PreferredAnswer:
    """Return the place of our run's answer, by its words."""
    (place,) = [number for number, half in enumerate(read_halves(page), 1) if WORDS[OURS] in half]
    return "1" if place == 1 else "2"


def judge_all(reviewer: Reviewer, review: str, choose: Callable[[int, Page], str], **fields: str) -> list[str]:
    """Judge every question from the start of a review, and return the choices."""
    choices: list[str] = []
    address = f"{review}/questions/1"
    while "/questions/" in address:
        page = reviewer.open(address)
        number = int(address.partition("/questions/")[2].partition("?")[0])
        choices.append(choose(number, page))
        response = reviewer.post(address.partition("?")[0], choice=choices[-1], **fields)
        assert response.status_code == 303, response.text
        address = response.headers["location"]
    return choices


# -- blindness --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_pages_of_reviewer_give_nothing_away(tmp_path: Path, runs: Path) -> None:
    keys = add_users(tmp_path, boss="administrator", anna="literature-reader")
    app = make_app(tmp_path, runs)
    review = Reviewer(app, keys["boss"]).start(criterion=["correctness", "faithfulness"])
    anna = Reviewer(app, keys["anna"])
    anna.open("/reviews")
    anna.open(review)
    judge_all(anna, review, lambda number, _: CHOICES[number % 3], remark="Short.")
    anna.open(review)
    anna.open(f"{review}/questions/2")
    anna.post(f"{review}/questions/2/draft", correctness="1")
    assert len(anna.pages) > 2 * len(TEXTS)
    for address, text in anna.pages.items():
        assert find_leaks(address + text, SECRETS) == [], address
        pairs = [item.pair for item in open_review(tmp_path, review).items]
        assert find_leaks(text, pairs) == [], "ids of pairs are in the exported key"


@pytest.mark.slow
def test_page_of_question_is_the_same_if_runs_change_names(tmp_path: Path, local: Reviewer) -> None:
    review = open_review(tmp_path, local.start(criterion=["completeness"]))
    for turn in review.turns("anna"):
        assert render_turn(review, turn.number) == render_turn(exchange_runs(review), turn.number)


def exchange_runs(review: BlindReview) -> BlindReview:
    """Return the review as if each run had written the answers of the other."""
    plan = review.plan
    ours, rival = plan.runs
    others = {ours: rival, rival: ours}
    first = {pair: others[run] for pair, run in plan.key.first.items()}
    key = replace(plan.key, arms=(ours, rival), first=first, writers=("another",), same=("x",), left_out={"y": {}})
    return replace(review, plan=replace(plan, runs=(rival, ours), key=key, creator="other", seed=9, sample=3, at=1.0))


def render_turn(review: BlindReview, number: int) -> str:
    turn = review.turns("anna")[number - 1]
    view = view_turn(review, ReviewState(), "anna", turn)
    return render("review_question", view=view, saved=0, fault="", places=PLACE_WORDS, most=9, page="reviews")


@pytest.mark.slow
def test_leak_of_run_name_is_noticed(tmp_path: Path, local: Reviewer, monkeypatch: pytest.MonkeyPatch) -> None:
    def view_with_leak(review: BlindReview, state: ReviewState, reviewer: str, turn: object) -> TurnView:
        view = original(review, state, reviewer, turn)  # type: ignore[arg-type]
        return replace(view, href=f"{view.href}?run={review.plan.key.first[turn.item.pair]}")  # type: ignore[attr-defined]

    original = view_turn
    review = local.start()
    stored = open_review(tmp_path, review)
    monkeypatch.setattr(review_routes, "view_turn", view_with_leak)
    monkeypatch.setitem(globals(), "view_turn", view_with_leak)
    assert find_leaks(local.open(f"{review}/questions/1").html, SECRETS) != []
    turns = range(1, len(TEXTS) + 1)
    assert any(render_turn(stored, number) != render_turn(exchange_runs(stored), number) for number in turns)


@pytest.mark.slow
def test_answer_is_shown_without_what_its_strategy_adds(runs: Path) -> None:
    for record in read_records(runs / OURS / RECORDS):
        answer = record.answer
        shown = blind_answer(answer)
        assert shown.claims[0].text == WORDS[OURS]
        assert [source.number for source in shown.sources] == list(range(1, len(shown.sources) + 1))
        other = replace(
            answer,
            strategy="rag",
            partials=(),
            trace=(),
            usage=Usage(calls=99, seconds=12.5),
            confidence=Confidence(0.5, {"parts": 0.5}),
            claims=tuple(replace(claim, support="contradicted", reason="No.") for claim in answer.claims),
            narrowing="kept",
            decided_by="majority",
        )
        assert blind_answer(other) == shown


def test_sources_are_numbered_in_the_order_of_the_claims(runs: Path) -> None:
    answer = next(record.answer for record in read_records(runs / OURS / RECORDS) if len(record.answer.citations) > 1)
    numbers = {1: 7, 2: 3}
    citations = [replace(one, number=numbers[one.number]) for one in reversed(answer.citations)]
    claims = [replace(claim, citations=tuple(numbers[number] for number in claim.citations)) for claim in answer.claims]
    assert blind_answer(replace(answer, citations=tuple(citations), claims=tuple(claims))) == blind_answer(answer)


def test_labels_of_one_strategy_are_removed_from_text(runs: Path) -> None:
    answer = next(read_records(runs / RIVAL / RECORDS)).answer
    shown = blind_answer(replace(answer, claims=(), text="It helps (finding 3). [1]\n\nOthers agree [doc 2]."))
    assert [claim.text for claim in shown.claims] == ["It helps.", "Others agree."]


@pytest.mark.slow
def test_places_and_questions_have_another_order_for_each_reviewer(tmp_path: Path, local: Reviewer) -> None:
    review = open_review(tmp_path, local.start())
    orders: list[tuple[str, ...]] = []
    for reviewer in map(str, range(40)):
        turns = review.turns(reviewer)
        assert turns == review.turns(reviewer), "it stays the same on another device"
        left = [(review.plan.key.first[turn.item.pair] == OURS) == (turn.order == "shown") for turn in turns]
        assert left.count(True) == 3
        orders.append(tuple(turn.item.pair for turn in turns))
    assert len(set(orders)) > 20
    sides = Counter(turn.order for reviewer in map(str, range(40)) for turn in review.turns(reviewer)[:1])
    assert min(sides.values()) > 8
    again = open_review(tmp_path, local.start())
    assert again.plan.seed == review.plan.seed
    assert again.plan.secret != review.plan.secret, "the seed of the sample does not decide places"


# -- judging ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_progress_is_kept_after_each_click_and_resumes_after_restart(tmp_path: Path, runs: Path) -> None:
    local = Reviewer(make_app(tmp_path, runs))
    review = local.start(criterion=["correctness"])
    assert "0 of 6 judged" in local.open(review).one("p", "lead").text
    second = local.post(f"{review}/questions/1", choice="1", correctness="tie", remark="Ünsure <b>\n1 mg").headers
    assert second["location"] == f"{review}/questions/2?saved=1"
    local.post(f"{review}/questions/2", choice="skip")
    local.post(f"{review}/questions/3/draft", remark="begun")
    # Another device, after a restart.
    other = Reviewer(make_app(tmp_path, runs))
    overview = other.open(review)
    assert overview.one("p", "lead").text.startswith("1 of 6 judged, 1 skipped")
    states = [" ".join(link.text.split()) for link in overview.all("a") if link.text.startswith("Question")]
    assert states[:4] == ["Question 1 Answer 1 is better", "Question 2 skipped", "Question 3 begun", "Question 4 open"]
    assert f"{review}/questions/3" in [link.attributes["href"] for link in overview.all("a", "primary")]
    first = other.open(f"{review}/questions/1")
    assert find_button(first, "1").attributes["aria-pressed"] == "true"
    assert "aria-pressed" not in find_button(first, "2").attributes
    assert first.one("textarea").text == "Ünsure <b>\n1 mg"
    (checked,) = [
        field for field in first.all("input") if "checked" in field.attributes and field.attributes.get("name")
    ]
    assert (checked.attributes["name"], checked.attributes["value"]) == ("correctness", "tie")
    # A changed verdict replaces the one before it; a draft keeps it.
    other.post(f"{review}/questions/1", choice="2", remark="Sure.")
    other.post(f"{review}/questions/1/draft", remark="Really.")
    changed = other.open(f"{review}/questions/1")
    assert find_button(changed, "2").attributes["aria-pressed"] == "true"
    assert changed.one("textarea").text == "Really."
    assert "1 of 6 judged" in changed.one("p", "kicker").text


@pytest.mark.slow
def test_skipped_questions_come_back_at_the_end(local: Reviewer) -> None:
    review = local.start()
    skipped: list[int] = []

    def skip_once(number: int, _: Page) -> str:
        if number in (2, 5) and number not in skipped:
            skipped.append(number)
            return "skip"
        return "tie"

    assert len(judge_all(local, review, skip_once)) == len(TEXTS) + 2
    assert "You have judged every question" in local.open(review).html


@pytest.mark.slow
def test_wrong_forms_change_nothing_and_say_why(tmp_path: Path, local: Reviewer) -> None:
    review = local.start(criterion=["correctness"])
    for fields, message in (
        ({"choice": "3"}, "none of those of the page"),
        ({"choice": "1", "correctness": "left"}, "none of those of the page"),
        ({"choice": "1", "remark": "x" * 4_001}, "up to 4,000 characters"),
    ):
        response = local.post(f"{review}/questions/1", **fields)
        assert (response.status_code, message in response.text) == (422, True), message
    for place in ("questions/0", "questions/7", "questions/-1", "questions/x", "results.json", "../x"):
        assert local.get(f"{review}/{place}").status_code in (404, 422), place
    assert not (tmp_path / "server" / REVIEWS_FOLDER / review.rpartition("/")[2] / VERDICTS).exists()
    response = local.post(f"{review}/questions/1", choice="", remark="Both cite the trial.")
    assert (response.status_code, "choose which answer is better" in response.text) == (200, True)
    again = local.open(f"{review}/questions/1")
    assert again.one("textarea").text == "Both cite the trial.", "what was typed is kept"
    assert "0 of 6 judged" in again.one("p", "kicker").text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rival": OURS}, "choose two different runs"),
        ({"rival": "../secret"}, "no run of this name"),
        ({"rival": ""}, "no run of this name"),
        ({"sample": "0"}, "Questions: give a whole number from 1 to 1,000"),
        ({"sample": "1e3"}, "Questions: give a whole number"),
        ({"seed": "-1"}, "Seed: give a whole number"),
        ({"reviewer": ["nobody"]}, "Reviewers: one of them is no user"),
    ],
)
def test_review_with_wrong_field_is_not_started(
    tmp_path: Path, local: Reviewer, fields: dict[str, str], message: str
) -> None:
    response = local.post("/reviews", **{"ours": OURS, "rival": RIVAL, **fields})
    assert response.status_code in (404, 422)
    assert message in Page(response.text).one("p", "fault").text
    assert not (tmp_path / "server" / REVIEWS_FOLDER).exists()


@pytest.mark.slow
def test_sample_is_drawn_by_its_seed(tmp_path: Path, local: Reviewer) -> None:
    def drawn(**fields: str) -> set[str]:
        return {item.question for item in open_review(tmp_path, local.start(**fields)).items}

    assert len(drawn(sample="3")) == 3
    assert drawn(sample="3", seed="5") == drawn(sample="3", seed="5")
    assert len({frozenset(drawn(sample="3", seed=str(seed))) for seed in range(8)}) > 1
    assert len(drawn(sample="1000")) == len(TEXTS)


# -- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_results_count_from_the_view_of_run_a_and_grade_reads_the_files(tmp_path: Path, runs: Path) -> None:
    keys = add_users(tmp_path, boss="administrator", anna="literature-reader", ben="literature-reader")
    app = make_app(tmp_path, runs)
    boss, anna, ben = (Reviewer(app, keys[name]) for name in ("boss", "anna", "ben"))
    review = boss.start(criterion=["correctness", "faithfulness"], reviewer=["anna", "ben"])
    # Anna prefers the answers of our run wherever they stand, Ben the place 1 whoever wrote it.
    judge_all(anna, review, lambda _, page: find_ours(page), remark="=better sources", correctness="tie")
    judge_all(ben, review, lambda *_: "1", faithfulness="2")
    assert boss.get(f"{review}/results").status_code == 422
    assert "anna: 6 of 6" in boss.open(review).html
    assert boss.post(f"{review}/close").headers["location"] == f"{review}/results"
    page = boss.open(f"{review}/results")
    captions = [" ".join(caption.text.split()) for caption in page.all("figcaption")]
    assert "anna: better 6, same 0, worse 0" in captions
    assert "ben: better 3, same 0, worse 3" in captions
    assert "majority of 2 reviewers: better 3, same 3, worse 0" in captions
    words = page.one("section", "results").text
    assert f"judged by majority of 2 reviewers: of 6 questions {OURS}'s answer is better in 3, worse in 0" in words
    assert "judged by ben: the first place wins 6 times, the second 0 times" in words
    assert "judged by anna: the first place wins 3 times, the second 3 times" in words
    assert "=better sources" in words
    check_grade(boss, review, tmp_path)
    for place in ("results", "review.json", "review.csv"):
        assert anna.get(f"{review}/{place}").status_code == 403
    assert anna.post(f"{review}/questions/1", choice="2").status_code == 422


def check_grade(boss: Reviewer, review: str, folder: Path) -> None:
    """Check that the command reads both files, and finds the figures of the page."""
    file, table = folder / "review.json", folder / "review.csv"
    file.write_bytes(boss.get(f"{review}/review.json").content)
    table.write_bytes(boss.get(f"{review}/review.csv").content)
    rows = list(csv.DictReader(io.StringIO(table.read_text("utf-8-sig"))))
    assert len(rows) == 12
    assert {row["why"] for row in rows if row["reviewer"] == "anna"} == {"'=better sources"}, "no formula"
    for arguments in ([], [str(table)]):
        result = CliRunner().invoke(program, ["grade", "verdicts", str(file), *arguments, "--json"])
        assert result.exit_code == 0, result.output
        output = json.loads(result.stdout)
        titles = {one["title"]: one for one in output["tables"]}
        assert f"{OURS}'s answer against {RIVAL}'s" in titles
        verdicts = {row[1]: row for row in titles[f"{OURS}'s answer against {RIVAL}'s"]["rows"]}
        assert verdicts["anna"][2:7] == [6, 0, 6, 0, 0]
        assert verdicts["ben"][2:7] == [6, 0, 3, 0, 3]
        assert verdicts["majority of 2 reviewers"][9] == pytest.approx(0.25), "3 to 0 by the exact sign test"
        places = {row[1]: row for row in titles["Does the place decide?"]["rows"]}
        assert places["ben"][2:5] == [6, 0, 0]
        assert places["anna"][2:5] == [3, 0, 3]
        criteria = {(row[0], row[1]): row for row in titles["By criterion"]["rows"]}
        assert criteria["correctness", "anna"][4:7] == [0, 6, 0]
        assert criteria["faithfulness", "ben"][4:7] == [3, 0, 3]
        (agreement,) = titles["How far the judges agree"]["rows"]
        assert agreement[2:4] == [2, 6]
        assert agreement[4]["value"] == pytest.approx(0.5)
    shown = CliRunner().invoke(program, ["grade", "verdicts", str(file)])
    assert f"{OURS}'s answer is better in 3, worse in 0 and the same in 3" in " ".join(shown.stdout.split())


@pytest.mark.slow
def test_same_answers_are_counted_and_not_shown(tmp_path: Path) -> None:
    folder(tmp_path / "runs" / OURS, lambda i, _: "abstained" if i in (0, 1) else True)
    folder(tmp_path / "runs" / RIVAL, lambda i, _: "abstained" if i in (0, 1) else i < 30)
    local = Reviewer(make_app(tmp_path, tmp_path / "runs"))
    review = local.start()
    stored = open_review(tmp_path, review)
    assert (len(stored.items), len(stored.plan.key.same), len(stored.plan.key.left_out)) == (10, 28, 2)
    assert "10 to judge, 28 with the same answers, 2 without a pair" in local.open(review).html
    judge_all(local, review, lambda *_: "tie")
    local.post(f"{review}/close")
    assert "better 0, same 38, worse 0" in local.open(f"{review}/results").html


@pytest.mark.slow
@pytest.mark.parametrize("questions", [QUESTIONS[:4], QUESTIONS[4:]])
def test_runs_with_nothing_to_compare_are_refused(tmp_path: Path, questions: tuple[object, ...]) -> None:
    folder(tmp_path / "runs" / OURS, lambda *_: True, questions=QUESTIONS[:4])
    folder(tmp_path / "runs" / RIVAL, lambda *_: True, questions=questions)  # type: ignore[arg-type]
    response = Reviewer(make_app(tmp_path, tmp_path / "runs")).post("/reviews", ours=OURS, rival=RIVAL)
    assert response.status_code == 422
    assert "nothing to compare" in response.text or "no question in common" in response.text


# -- access -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_chosen_reviewers_and_administrators_open_a_review(tmp_path: Path, runs: Path) -> None:
    keys = add_users(tmp_path, boss="administrator", anna="literature-reader", eve="literature-reader")
    app = make_app(tmp_path, runs)
    boss, anna, eve = (Reviewer(app, keys[name]) for name in ("boss", "anna", "eve"))
    review = boss.start(reviewer=["anna"])
    assert anna.get(f"{review}/questions/1").status_code == 200
    assert [eve.get(place).status_code for place in (review, f"{review}/questions/1")] == [404, 404]
    assert "Review of" not in eve.open("/reviews").one("main").text
    assert boss.get(f"{review}/questions/1").status_code == 403, "an administrator is no reviewer"
    for place in ("/reviews/new", f"{review}/results"):
        assert anna.get(place).status_code == 403
    for place in ("close", "delete"):
        assert anna.post(f"{review}/{place}").status_code == 403
    assert anna.post("/reviews", ours=OURS, rival=RIVAL).status_code == 403
    assert Reviewer(app).get(review).status_code == 401
    assert boss.post(f"{review}/delete").status_code == 303
    assert anna.get(review).status_code == 404
    assert not list((tmp_path / "server" / REVIEWS_FOLDER).glob("*/*"))


@pytest.mark.slow
@pytest.mark.parametrize("id_", ["..%2f..%2fusers.json", "%2e%2e", "x" * 32, "a" * 31 + "%00", "a" * 31 + "%2f"])
def test_id_of_no_review_reads_no_file(local: Reviewer, id_: str) -> None:
    assert local.get(f"/reviews/{id_}").status_code in (307, 404)
    assert local.post(f"/reviews/{id_}/questions/1", choice="1").status_code == 404


@pytest.mark.slow
def test_name_of_another_folder_opens_no_review(tmp_path: Path, local: Reviewer) -> None:
    review = open_review(tmp_path, local.start())
    shutil.copytree(tmp_path / "server" / REVIEWS_FOLDER / review.plan.id, tmp_path / "secret")
    for file in (tmp_path / "secret").iterdir():
        shutil.copy(file, tmp_path / "server")
    store = ReviewStore(ItemFolder(tmp_path / "server" / REVIEWS_FOLDER))
    for id_ in ("..", "../../secret", str(tmp_path / "secret"), f"{review.plan.id}/../../../secret"):
        with pytest.raises(NotFound):
            store.find(id_)
    assert local.get("/reviews/%2e%2e").status_code == 404
    assert store.find(review.plan.id) == review


@pytest.mark.slow
def test_review_about_patients_needs_role_and_is_logged(tmp_path: Path) -> None:
    notes = [
        Document(
            "n1", "Anna was given aspirin for the pain in her chest on the ward.", date="2150-01-01", patient="P1"
        ),
        Document("n2", "She was later given colchicine for the gout in her foot.", date="2150-02-01", patient="P1"),
    ]
    asked = list_questions(("Which drug was given first?", "Which drug was given for gout?"), "P1")
    for name, strategy in STRATEGIES.items():
        answer_run(tmp_path / "runs" / name, tmp_path / strategy, asked, strategy, WORDS[name], documents=notes)
    roles = {"boss": "administrator", "nurse": "patient-reader", "anna": "literature-reader"}
    keys = add_users(tmp_path, **roles)  # type: ignore[arg-type]
    app = make_app(tmp_path, tmp_path / "runs")
    boss, nurse, anna = (Reviewer(app, keys[name]) for name in roles)
    refused = boss.post("/reviews", ours=OURS, rival=RIVAL, reviewer=["anna"])
    assert "anna may not read every patient" in refused.text
    review = boss.start()
    before = len(read_access_log(tmp_path / "server"))
    assert anna.get(f"{review}/questions/1").status_code == 404
    assert nurse.get(f"{review}/questions/1").status_code == 200
    boss.post(f"{review}/close")
    assert boss.get(f"{review}/results").status_code == 200
    entries = read_access_log(tmp_path / "server")[before:]
    assert [(entry["user"], entry["action"], entry["outcome"], entry["patient"]) for entry in entries] == [
        ("anna", "review", "refused", None),
        ("nurse", "review", "allowed", "P1"),
        ("boss", "review-results", "allowed", None),
    ]
    assert entries[1]["documents"]
    assert "aspirin" not in json.dumps(entries)


def test_server_without_folder_or_runs_says_so(tmp_path: Path, runs: Path) -> None:
    local = Reviewer(make_app(tmp_path, runs))
    assert local.get("/reviews/new").status_code == 200
    shutil.rmtree(tmp_path / "server", ignore_errors=True)
    assert "There is no review" in local.open("/reviews").html


# -- kill -------------------------------------------------------------------------------------------------------------

_SAVER = """
import sys
from pathlib import Path
from epicrisis.server.base.item_folder import ItemFolder
from epicrisis.server.runs.reviews import ReviewStore, ReviewVerdict
store, id_ = ReviewStore(ItemFolder(Path(sys.argv[1]))), sys.argv[2]
for i in range(100_000):
    store.save(id_, ReviewVerdict("anna", f"p{i}", "judged", "shown", "anna", "1", {}, "word " * 200))
    print(i, flush=True)
"""


@pytest.mark.long
def test_verdicts_survive_kill(tmp_path: Path, local: Reviewer) -> None:
    review = open_review(tmp_path, local.start())
    store = ReviewStore(ItemFolder(tmp_path / "server" / REVIEWS_FOLDER))
    saved = -1
    for _ in range(3):
        command = [sys.executable, "-c", _SAVER, str(tmp_path / "server" / REVIEWS_FOLDER), review.plan.id]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                saved = max(saved, int(line))
                if int(line) >= 8:
                    os.kill(process.pid, signal.SIGKILL)
                    break
        state = store.read_state(review.plan.id)
        assert {f"p{i}" for i in range(saved + 1)} <= {pair for _, pair in state.verdicts}
    # A line cut off by the kill is not a verdict, and the next one begins after it.
    path = tmp_path / "server" / REVIEWS_FOLDER / review.plan.id / VERDICTS
    with path.open("ab") as file:
        file.write(b'{"reviewer": "anna", "pair": "half')
    assert "half" not in str(store.read_state(review.plan.id).verdicts.keys())
    store.save(
        review.plan.id,
        ReviewVerdict(reviewer="ben", pair="p1", state="judged", order="swapped", name="ben", choice="2"),
    )
    state = store.read_state(review.plan.id)
    assert state.verdicts["ben", "p1"].choice == "2"
    assert path.stat().st_mode & 0o777 == 0o600
