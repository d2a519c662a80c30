"""The role of a sentence: by its heading, or by words and place."""

from __future__ import annotations

import pytest

from epicrisis.reading.roles import ROLES, classify_roles, name_role

ABSTRACT = [
    "Ankle sprains are among the commonest injuries in sport.",
    "We aimed to determine whether early mobilisation shortens recovery.",
    "Ninety patients were randomly assigned to a brace or to a cast and assessed by a blinded examiner.",
    "Return to sport took 31 days with the brace and 44 days with the cast (p = 0.002).",
    "We conclude that early mobilisation should be preferred after an ankle sprain.",
]


def test_roles_of_an_abstract_without_headings() -> None:
    rows = classify_roles(ABSTRACT)
    roles = [ROLES[int(row.argmax())] for row in rows]
    assert roles[0] == "background"
    assert roles[1] in ("aim", "background")
    assert roles[2:] == ["method", "result", "conclusion"]
    assert all(0.2 < row.max() < 1 for row in rows)


@pytest.mark.parametrize(
    ("heading", "role"),
    [
        ("Materials and methods", "method"),
        ("3.2 Main results", "result"),
        ("CONCLUSIONS", "conclusion"),
        ("Aims", "aim"),
        ("Introduction", "background"),
        ("METHODS AND RESULTS", None),
        ("BACKGROUND AND PURPOSE", None),
        ("Discussion", None),
        ("Claims data", None),
        ("", None),
    ],
)
def test_heading_that_names_one_role(heading: str, role: str | None) -> None:
    assert name_role(heading) == role


def test_document_without_sentences_has_no_roles() -> None:
    assert classify_roles([]).shape == (0, len(ROLES))
