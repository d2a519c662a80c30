"""Quotations are found word for word, at the right place, or marked as not found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.answering.citations import MIN_WORDS, cite, locate, locate_all
from epicrisis.core.answers import Quotation
from epicrisis.core.prompts import escape
from epicrisis.core.types import Document, Passage

DOCUMENT = Document(
    "d",
    "Background. Aspirin (75 mg) prevents stroke,\n  in adults\tover 40; p < .05 [95% CI 0.61–0.87]. Not <|im_end|> in "
    "children, says </documents> one. Aspirin prevents stroke again.",
    title="Title",
)


def passage_of(document: Document, start: int, end: int, ordinal: int = 0) -> Passage:
    return Passage(
        id=f"{document.id}#{ordinal}",
        document_id=document.id,
        ordinal=ordinal,
        start=start,
        end=end,
        text=document.text[start:end],
        title=document.title,
    )


PASSAGE = passage_of(DOCUMENT, 12, len(DOCUMENT.text))


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("Aspirin (75 mg) prevents stroke", "Aspirin (75 mg) prevents stroke"),
        ("prevents stroke, in adults over 40", "prevents stroke,\n  in adults\tover 40"),
        ("  prevents   stroke,\nin adults ", "prevents stroke,\n  in adults"),
        ('"Aspirin (75 mg) prevents"', "Aspirin (75 mg) prevents"),
        ("“Aspirin (75 mg) prevents stroke…”", "Aspirin (75 mg) prevents stroke"),
        ("... prevents stroke, in adults ...", "prevents stroke,\n  in adults"),
        ("p < .05 [95% CI 0.61–0.87]", "p < .05 [95% CI 0.61–0.87]"),
        ("Not <\\|im_end|> in children", "Not <|im_end|> in children"),
        ("Not <|im_end|> in children", "Not <|im_end|> in children"),
        ("says <\\/documents> one", "says </documents> one"),
        ("stroke again.", None),
        ("Aspirin prevents stroke again.", "Aspirin prevents stroke again"),
    ],
)
def test_verbatim_quotation_is_verified(quote: str, found: str | None) -> None:
    quotation = locate(quote, PASSAGE)
    assert quotation.passage_id == "d#0"
    if found is None:
        assert quotation == Quotation("d#0", quote)
        assert not quotation.verified
    else:
        assert quotation.text == found
        assert quotation.verified
        assert DOCUMENT.text[quotation.start : quotation.end] == found


@pytest.mark.parametrize(
    "quote",
    [
        "",
        "...",
        "Aspirin",
        "prevents stroke",
        "aspirin (75 mg) prevents stroke",
        "Aspirin (75 mg) does prevent stroke",
        "Aspirin (75 mg) ... stroke",
        "Aspirin .75 mg. prevents stroke",
        "Background. Aspirin (75 mg)",
        "in adultsover 40",
    ],
)
def test_absent_quotation_keeps_model_words(quote: str) -> None:
    assert locate(quote, PASSAGE) == Quotation("d#0", quote, None, None)


def test_first_occurrence_is_cited() -> None:
    text = "It does help here. It does help there."
    passage = passage_of(Document("e", text), 0, len(text))
    assert locate("It does help", passage).start == 0


words = st.lists(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1), min_size=MIN_WORDS, max_size=9)
gaps = st.sampled_from([" ", "\n", "  ", "\t", "\u00a0", " \r\n "])


@pytest.mark.slow
@given(words, st.lists(gaps, min_size=20, max_size=20), st.text(), st.integers(0, 50))
def test_quotation_offsets_refer_to_document(tokens: list[str], blanks: list[str], before: str, cut: int) -> None:
    """However the model spaces and escapes what it copies, the place is the document's own."""
    tokens = ["x" + token + "x" for token in tokens]
    sentence = "".join(token + blank for token, blank in zip(tokens, blanks, strict=False)).rstrip()
    document = Document("e", f"{before} {sentence} end")
    passage = passage_of(document, min(cut, len(before)), len(document.text))
    quotation = locate(escape(" ".join(tokens)), passage)
    assert quotation.verified
    assert document.text[quotation.start : quotation.end] == quotation.text
    assert quotation.text.split() == " ".join(tokens).split()


@pytest.mark.slow
@given(st.text(), st.text())
def test_any_quote_of_any_text_is_verified(quote: str, text: str) -> None:
    passage = passage_of(Document("e", text), 0, len(text))
    quotation = locate(quote, passage)
    if quotation.verified:
        assert text[quotation.start : quotation.end] == quotation.text
    else:
        assert quotation.text == quote


def test_quote_is_searched_in_its_document() -> None:
    one = passage_of(Document("e", "Only here is this said."), 0, 23)
    first, second = locate_all([(2, "Only here is this"), (1, "Only here is this")], [PASSAGE, one])
    assert (first.passage_id, first.verified) == ("e#0", True)
    assert (second.passage_id, second.verified) == ("d#0", False)


OTHER = Passage(
    id="e#3",
    document_id="e",
    ordinal=3,
    start=200,
    end=300,
    text="x" * 100,
    title="Other",
    source="pubmed",
    date="2015",
)
PLACES = [PASSAGE, OTHER]
HALVES = Document(
    "h", "Aspirin was given to all women.\n\nIt prevented one birth in six.", title="A trial of low-dose aspirin"
)
FIRST = passage_of(HALVES, 0, 31)
SECOND = passage_of(HALVES, 33, len(HALVES.text), 1)


@pytest.mark.parametrize(
    ("quote", "holder"),
    [
        ("It prevented one birth in six", SECOND),
        ("Aspirin was given to all women", FIRST),
        ("was given to all women. It prevented", FIRST),
        ("all women. It prevented one birth in", SECOND),
    ],
)
@pytest.mark.parametrize("named", [FIRST, SECOND])
@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, PASSAGE, FIRST)])
def test_quotation_in_neighbouring_passage_is_verified_there(
    quote: str, holder: Passage, named: Passage, order: tuple[Passage, ...]
) -> None:
    quotation = locate(quote, named, order)
    assert quotation.passage_id == holder.id
    assert HALVES.text[quotation.start : quotation.end] == quotation.text
    assert quotation.text.rstrip(".") in quote


def test_quotation_across_gap_gives_quotation_on_each_side() -> None:
    quotations = locate_all([(1, "given to all women. It prevented one birth")], [FIRST, SECOND])
    assert [quotation.text for quotation in quotations] == ["given to all women.", "It prevented one birth"]
    for quotation, holder in zip(quotations, [FIRST, SECOND], strict=True):
        assert HALVES.text[quotation.start : quotation.end] == quotation.text
        assert quotation.passage_id == holder.id


def test_few_words_beside_gap_are_no_quotation() -> None:
    (quotation,) = locate_all([(1, "was given to all women. It")], [FIRST, SECOND])
    assert (quotation.text, quotation.passage_id) == ("was given to all women.", FIRST.id)


def test_quotation_across_overlapping_passages_is_verified() -> None:
    overlapping = passage_of(HALVES, 12, len(HALVES.text), 1)
    quotation = locate("was given to all women. It prevented", overlapping, [FIRST, overlapping])
    assert HALVES.text[quotation.start : quotation.end] == "was given to all women.\n\nIt prevented"
    assert quotation.passage_id == FIRST.id


def test_quotation_across_distant_passages_is_not_verified() -> None:
    third = passage_of(HALVES, 33, len(HALVES.text), 2)
    assert not locate("to all women. It prevented one birth", FIRST, [FIRST, third]).verified


def test_quotation_from_another_document_is_not_verified() -> None:
    assert not locate("It prevented one birth in six", PASSAGE, [PASSAGE, FIRST, SECOND]).verified


def test_quotation_in_title_is_verified_without_offsets() -> None:
    quotation = locate("trial of low-dose", SECOND, [FIRST, SECOND])
    assert quotation == Quotation(SECOND.id, "trial of low-dose", in_title=True)
    assert quotation.verified
    _, (citation,) = cite("It helps.", [quotation], [SECOND])
    assert (citation.verified, citation.in_title, citation.start, citation.end) == (True, True, 33, len(HALVES.text))


VERIFIED = Quotation("d#0", "prevents stroke", 30, 45)
UNVERIFIED = Quotation("e#3", "never said so")


def test_verified_quotations_precede_unverified() -> None:
    text, citations = cite("It does.", [UNVERIFIED, VERIFIED, UNVERIFIED, VERIFIED], PLACES)
    assert text == "It does. [1][2]"
    assert [(c.number, c.passage_id, c.document_id, c.verified) for c in citations] == [
        (1, "d#0", "d", True),
        (2, "e#3", "e", False),
    ]
    assert [(c.start, c.end, c.quotation) for c in citations] == [
        (30, 45, "prevents stroke"),
        (200, 300, "never said so"),
    ]
    assert (citations[1].title, citations[1].source, citations[1].date) == ("Other", "pubmed", "2015")


def test_verified_quotations_keep_order() -> None:
    later = Quotation("e#3", "xxx", 250, 253)
    assert [c.passage_id for c in cite("x", [later, VERIFIED], PLACES)[1]] == ["e#3", "d#0"]


def test_two_quotations_of_passage_give_two_citations() -> None:
    other = Quotation("d#0", "in adults", 50, 59)
    assert [(c.start, c.number) for c in cite("x", [VERIFIED, other], PLACES)[1]] == [(30, 1), (50, 2)]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("It does [1].", "It does."),
        ("It does [1] [2][3].", "It does."),
        ("It does [doc 1], mostly [Evidence 2].", "It does, mostly."),
        ("It does [doc 1, doc 2; 3].", "It does."),
        ("[finding 1] It does.", "It does."),
        ("A [document 12] B", "A B"),
        ("[1]", ""),
        ("HR 0.7 [0.5-0.9], p < .05", "HR 0.7 [0.5-0.9], p < .05"),
        ("between .3 and .5 , or so", "between .3 and .5 , or so"),
        ("the interval [2, 4] and [see doc]", "the interval [2, 4] and [see doc]"),
        ("[docs] and [IL-6]", "[docs] and [IL-6]"),
    ],
)
def test_only_citation_markers_are_removed(text: str, clean: str) -> None:
    assert cite(text, [], []) == (clean, ())
    assert cite(text, [VERIFIED], PLACES)[0] == f"{clean} [1]"
