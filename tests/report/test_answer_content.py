"""An answer for a reader: verdict, claims, sources and gaps, alike on the screen and in files."""

from __future__ import annotations

import io
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from epicrisis.cli.event_display import EventDisplay, describe_path
from epicrisis.core.answers import (
    Answer,
    Claim,
    Conflict,
    ConflictSide,
    Failure,
    Notice,
    PartialAnswer,
    WithheldAnswer,
)
from epicrisis.core.references import Reference
from epicrisis.core.types import ArticleMark, Question
from epicrisis.report.answer_content import build_answer_content, describe_check, format_markers
from epicrisis.report.answer_files import escape_markdown, to_html, to_markdown
from tests.support.citations import TRIAL

OTHER = replace(
    TRIAL,
    number=2,
    passage_id="pubmed:2#0",
    document_id="pubmed:2",
    title="Aspirin at term",
    quotation="Nothing changed.",
    reference=Reference(journal="Gut", year="2001"),
)
CLAIMS = (Claim("Aspirin lowers the risk.", (1,)), Claim("At term nothing changes.", (2,)))
QUESTION = Question("Does aspirin help?", options={"A": "yes", "B": "no"}, form="choice")
ANSWER = Answer(
    question=QUESTION,
    strategy="rag",
    state="answered",
    text="It does. [1][2]",
    choice="A",
    citations=(TRIAL, OTHER),
    claims=CLAIMS,
)
EVIL = "<script>alert(1)</script> [link](http://evil) | *bold*\u202e\x1b[31m"


class Checker(HTMLParser):
    """Collects tags, links and text, and fails on tags that do not match."""

    VOID = frozenset({"meta", "br", "!doctype"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.labelled_by: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.links += [value for name, value in attrs if name in ("href", "src") and value]
        self.ids += [values["id"] or ""] if "id" in values else []
        self.labelled_by += [values["aria-labelledby"] or ""] if "aria-labelledby" in values else []
        if tag == "html":
            assert values["lang"] == "en"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def check_page(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def show(answer: Answer, *, quiet: bool = False, verbose: bool = False) -> str:
    out = io.StringIO()
    EventDisplay(Console(file=out, width=500)).show_answer(answer, quiet=quiet, verbose=verbose)
    return out.getvalue()


def test_answer_on_screen_begins_with_verdict_and_claims() -> None:
    lines = show(ANSWER).splitlines()
    assert lines[0] == "Answer: A. yes"
    assert lines[1:3] == [
        "  * Aspirin lowers the risk. [1] (not checked)",
        "  * At term nothing changes. [2] (not checked)",
    ]
    assert lines[4:10] == [
        "Sources",
        "  [1] Rolnik DL. Aspirin and pre-eclampsia. N Engl J Med. 2017",
        "      Study type: randomised trial",
        "      “Aspirin lowered the risk.” (not checked, section Results, page 3)",
        "      PMID 28657417: https://pubmed.ncbi.nlm.nih.gov/28657417/",
        "  [2] Aspirin at term. Gut. 2001",
    ]


def test_open_answer_begins_with_first_claim() -> None:
    answer = replace(ANSWER, question=Question("Why?"), choice=None)
    assert show(answer).splitlines()[:2] == [
        "Answer: Aspirin lowers the risk. [1] (not checked)",
        "  * At term nothing changes. [2] (not checked)",
    ]


def test_answer_without_claims_shows_its_text() -> None:
    assert show(replace(ANSWER, claims=())).splitlines()[0] == "Answer: A. yes — It does. [1][2]"


def test_quiet_answer_is_verdict_and_claims_only() -> None:
    assert len(show(ANSWER, quiet=True).splitlines()) == 3


@pytest.mark.parametrize(
    ("mark", "words"),
    [("retracted", "RETRACTED"), ("expression-of-concern", "EXPRESSION OF CONCERN"), ("corrected", "CORRECTED LATER")],
)
@pytest.mark.parametrize("strategy", ["rag", "evidence"])
@pytest.mark.parametrize("claims", [CLAIMS, ()])
def test_mark_of_a_source_is_in_every_output(
    mark: ArticleMark, words: str, strategy: str, claims: tuple[Claim, ...]
) -> None:
    marked = replace(TRIAL, marks=(mark,))
    answer = replace(ANSWER, strategy=strategy, citations=(marked, OTHER), claims=claims)
    screen, content = show(answer), build_answer_content(answer)
    assert f"  [1] [{words}] " in screen
    if strategy == "rag":
        assert f"[1: {words}]" in show(answer, quiet=True)
        assert f"\\[1: {words}\\]" in to_markdown(content)
    assert f"* \\[1\\] **{words}**" in to_markdown(content)
    assert f'<strong class="mark">{words}</strong>' in to_html(content)
    assert words not in show(ANSWER) + to_markdown(build_answer_content(ANSWER)) + to_html(build_answer_content(ANSWER))


def test_second_sentence_of_a_retracted_source_has_its_mark_too() -> None:
    marked = replace(TRIAL, marks=("retracted",))
    answer = replace(ANSWER, strategy="evidence", citations=(marked, replace(marked, number=2, start=50, end=60)))
    assert show(answer, verbose=True).count("[RETRACTED]") == 2
    assert "Same source as [1]; pubmed:1" in show(answer, verbose=True)
    assert show(answer).count("[RETRACTED]") == 1


def test_quotations_of_one_document_share_an_entry() -> None:
    answer = replace(ANSWER, citations=(TRIAL, replace(TRIAL, number=2, quotation="It did.", verified=False)))
    screen = show(answer)
    assert "  [1][2] Rolnik DL." in screen
    assert "      [2] “It did.” (NOT found in its document)" in screen
    assert "1 of 2 quotations is not in the document named." in screen


def test_support_is_stated_of_claims_and_of_their_sources() -> None:
    checked = Claim("It doubles the risk.", (1,), "contradicted", "the sentence says lowered", "rules")
    screen = show(replace(ANSWER, claims=(checked, CLAIMS[1])))
    assert "It doubles the risk. [1] (contradicted: the sentence says lowered)" in screen
    assert "At term nothing changes. [2] (not checked)" in screen
    assert "“Aspirin lowered the risk.” (contradicted, section Results, page 3)" in screen


def test_sentence_that_the_program_chose_is_called_so() -> None:
    chosen = replace(TRIAL, chosen_by_program=True)
    claim = replace(CLAIMS[0], support="supported", checked_by="rules")
    screen = show(replace(ANSWER, citations=(chosen,), claims=(claim,)))
    assert "“Aspirin lowered the risk.” (supported, chosen by the program, section Results, page 3)" in screen


def test_nearest_results_stand_in_the_place_of_the_sources() -> None:
    uncited = replace(CLAIMS[0], citations=(), reason="no sentence was found that shows it")
    answer = replace(ANSWER, citations=(), claims=(uncited,), nearest=(TRIAL,))
    screen = show(answer)
    assert "It cites nothing: compare it with the nearest results that were read." in screen
    assert "Nearest results\n  [1] Rolnik DL." in screen
    assert "      “Aspirin lowered the risk.” (section Results, page 3)\n" in screen
    assert describe_check(answer, TRIAL) == "nearest result, cited by no claim"


def test_withheld_claim_is_shown_with_its_reason() -> None:
    withheld = Claim("It doubles the risk.", (1,), "contradicted", "the sentence says lowered", "rules")
    screen = show(replace(ANSWER, withheld_claims=(withheld,)))
    assert "Withheld, contradicted: “It doubles the risk.”: the sentence says lowered." in screen


def test_conflict_is_in_every_output() -> None:
    sides = (
        ConflictSide(
            label="A (yes)", summary="2 randomised trials", count=2, choice="A", is_answer=True, citations=(1,)
        ),
        ConflictSide(label="B (n\x1bo)", summary="1 case report", count=1, choice="B"),
    )
    conflict = Conflict("parts", sides, "reduce call, with the majority of parts")
    answer = Answer(
        question=Question("Does it?"), strategy="brief-context", state="answered", text="Yes.", conflicts=(conflict,)
    )
    (section,) = [part for part in build_answer_content(answer).sections if part.heading == "Disagreements"]
    (line,) = section.lines
    assert line.startswith("2 for A (yes): 2 randomised trials [1]; 1 for B (n")
    assert line.endswith("o): 1 case report. Decided by: reduce call, with the majority of parts")
    assert "\x1b" not in line
    content = build_answer_content(answer)
    for output in (show(answer), to_markdown(content), to_html(content)):
        assert "Disagreements" in output
    assert "Disagreements" not in show(replace(answer, conflicts=()))


def test_gaps_name_failed_and_empty_parts_and_withheld_documents() -> None:
    partials = (
        PartialAnswer(partition=0, passages=("a#0",), state="failed", failure=Failure("Timeout", "no reply in 600 s")),
        PartialAnswer(partition=1, passages=("b#0",), state="nothing"),
    )
    trace = (
        Notice("search", "1 retracted document is left out: pubmed:9"),
        Notice("left-out", "1 of 2 parts could not be read: 0"),
        Notice("demo-model", "m is a small model"),
        Notice("retried", "map 0: 2 failed tries"),
    )
    content = build_answer_content(replace(ANSWER, partials=partials, trace=trace))
    gaps, notes = content.sections[-2:]
    assert gaps.heading == "Not found, left out or failed"
    assert gaps.lines == (
        "Part 1 of 2 could not be read: no reply in 600 s",
        "1 of 2 parts of the evidence contains nothing relevant to the question.",
        "1 retracted document is left out: pubmed:9",
    )
    assert notes.lines == ("m is a small model",)
    assert "map 0: 2 failed tries" in "\n".join(describe_path(replace(ANSWER, trace=trace)))


def test_answer_that_cites_nothing_warns_even_if_quiet() -> None:
    answer = Answer(question=Question("Why?"), strategy="rag", state="answered", text="Because.")
    assert "It cites nothing: do not rely on it." in show(answer, quiet=True)


def test_failure_is_in_files_and_not_on_screen() -> None:
    answer = Answer(question=Question("Why?"), strategy="rag", state="failed", failure=Failure("Timeout", "no reply"))
    assert show(answer).splitlines() == ["No answer (failed)"]
    assert "no reply" in to_markdown(build_answer_content(answer))
    assert "no reply" in to_html(build_answer_content(answer))


def test_withheld_answer_shows_reason_and_what_the_model_said() -> None:
    withheld = WithheldAnswer("It does.", "it quotes no document", "A", (replace(TRIAL, verified=False),))
    answer = Answer(question=QUESTION, strategy="rag", state="abstained", withheld=withheld)
    screen = show(answer)
    assert screen.startswith("No answer (abstained): The model's answer is not trusted: it quotes no document.")
    assert "The model answered: A. yes — It does." in screen
    assert "Sources that the model named" in screen


def test_files_hold_every_line_of_the_screen() -> None:
    answer = replace(ANSWER, trace=(Notice("demo-model", "m is small"),), patient="p1", patient_name="Ada")
    content = build_answer_content(answer)
    page = " ".join(" ".join(check_page(to_html(content)).text).split())
    markdown = to_markdown(content).replace("\\", "")
    for line in filter(None, show(answer, verbose=True).splitlines()[:-1]):
        text = line.strip().removeprefix("* ").partition(": ")[2] or line.strip().removeprefix("* ")
        text = text.removeprefix("[1] ").removeprefix("[2] ")
        if text.startswith("https:"):
            assert f"(<{text}>)" in to_markdown(content)
            assert text in to_html(content)
        else:
            assert text in page
            assert text in markdown


def test_page_is_well_formed_without_script_and_labelled() -> None:
    page = to_html(build_answer_content(ANSWER), ["Found by hybrid"])
    checker = check_page(page)
    assert checker.links == ["https://pubmed.ncbi.nlm.nih.gov/28657417/"]
    assert not {"script", "img", "link", "iframe", "form"} & set(checker.tags)
    assert checker.tags.count("h1") == checker.tags.count("main") == checker.tags.count("title") == 1
    assert set(checker.labelled_by) <= set(checker.ids)
    assert len(checker.ids) == len(set(checker.ids))


def test_markup_in_texts_is_data_in_files() -> None:
    evil = replace(TRIAL, title=EVIL, quotation=EVIL, document_id=EVIL, reference=Reference(journal=EVIL))
    claims = (Claim(EVIL, (1,)),)
    content = build_answer_content(
        Answer(
            question=Question(EVIL),
            strategy="rag",
            state="answered",
            text=EVIL,
            citations=(evil,),
            claims=claims,
            trace=(Notice("search", EVIL),),
        )
    )
    page, markdown = to_html(content, [EVIL]), to_markdown(content, [EVIL])
    checker = check_page(page)
    assert "script" not in checker.tags
    assert checker.links == []
    assert "<script" not in markdown.replace("\\<script", "")
    assert "](" not in markdown.replace("\\](http\\:", "")
    for text in (page, markdown):
        assert "\x1b" not in text
        assert "\u202e" not in text


@pytest.mark.parametrize(
    "text",
    ["- item", "1. item", "# head", "> quote", "`code`", "a|b", "---", "12) x", "+ x", "http://evil", "www.evil"],
)
def test_escaped_text_is_no_markdown(text: str) -> None:
    escaped = escape_markdown(text)
    assert escaped.replace("\\", "") == text
    assert "\\" in escaped


@pytest.mark.parametrize(
    ("numbers", "markers"),
    [
        ((3,), "[3]"),
        ((1, 2, 3, 4), "[1][2][3][4]"),
        ((2, 3, 4, 5, 1, 8), "[1]-[5][8]"),
        ((1, 3, 5, 7, 9), "[1][3][5][7][9]"),
    ],
)
def test_many_markers_are_ranges(numbers: tuple[int, ...], markers: str) -> None:
    assert format_markers(numbers) == markers


def test_evidence_on_screen_shows_each_study_once_and_no_offsets() -> None:
    more = replace(TRIAL, number=3, quotation="Aspirin lowered the risk again.", start=50, end=80)
    evidence = replace(ANSWER, strategy="evidence", claims=(), citations=(TRIAL, *ANSWER.citations[1:], more))
    lines = show(evidence).splitlines()
    assert [line for line in lines if line.startswith("  [")] == [
        "  [1] “Aspirin lowered the risk.”",
        "  [2] “Nothing changed.”",
    ]
    (about,) = [line for line in lines if "Rolnik DL" in line]
    assert "randomised trial" in about
    assert about.endswith("1 more sentence. https://pubmed.ncbi.nlm.nih.gov/28657417/")
    assert not [line for line in lines if "characters" in line]
    assert any("characters 50 to 80" in line for line in show(evidence, verbose=True).splitlines())


def test_eight_studies_fit_on_a_screen() -> None:
    citations = [
        replace(TRIAL, number=n, document_id=f"pubmed:{n}", title=f"Trial {n}", reference=Reference(year=str(2000 + n)))
        for n in range(1, 9)
    ]
    evidence = replace(ANSWER, strategy="evidence", claims=(), citations=tuple(citations))
    assert len(show(evidence).splitlines()) <= 25


def test_printed_answer_is_what_the_screen_shows() -> None:
    lines = show(ANSWER).splitlines()
    assert (
        str(ANSWER).splitlines() == lines[: lines.index("-v shows every sentence, where it stands, and the steps") - 1]
    )
    failed = replace(ANSWER, state="failed", failure=Failure("EndpointUnreachable", "nobody answers"), claims=())
    assert str(failed).splitlines()[0] == "No answer (failed): nobody answers"
