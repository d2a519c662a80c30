"""Markup in titles and abstracts is removed, and comparisons, powers and formulas stay."""

from __future__ import annotations

import pytest

from epicrisis.corpus.base.markup import remove_markup, split_sections


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (
            '<AbstractText Label="AIM" NlmCategory="X">To see.</AbstractText><AbstractText>More.</AbstractText>',
            "AIM: To see. More.",
        ),
        ("<h3>Aim</h3>To see.<h4>Results:</h4> 5 %", "Aim: To see. Results: 5 %"),
        ("<b>Aim: </b>To see.<br/><strong>Results</strong>: 5 %", "Aim: To see. Results: 5 %"),
        (
            "<jats:title>Abstract</jats:title><jats:sec><jats:title>Aim</jats:title><jats:p>To see.</jats:p>",
            "Aim: To see.",
        ),
        ('<jats:p>&lt;p dir="ltr"&gt;Aim&lt;/p&gt;&lt;p&gt;To see.&lt;/p&gt;</jats:p>', "Aim To see."),
        ("&amp;lt;i&amp;gt;E. coli&amp;lt;/i&amp;gt; &amp;amp; more", "E. coli & more"),
        ("10<jats:sup>9</jats:sup>, 10 <sup>-3</sup>, m<sup>2</sup>, 1<sup>st</sup>", "10^9, 10^-3, m^2, 1st"),
        ("by 12<sup>3</sup> percent, 30%<sup>4,5</sup>, 1.73 m<sup>2</sup>", "by 12 [3] percent, 30% [4,5], 1.73 m^2"),
        ("CO<jats:sub>2</jats:sub> and T<sub>max</sub>", "CO2 and Tmax"),
        ("p < 0.05, a<b and <5 mg, x > 3 & y", "p < 0.05, a<b and <5 mg, x > 3 & y"),
        ("p &lt; 0.05 &amp; <i>x</i> < 3", "p < 0.05 & x < 3"),
        ("<p>open <i>and <sup>a</p> closed</b>", "open and a closed"),
        ("<b and c=3> and <sup b", "<b and c=3> and <sup b"),
        ("a\x00\u2028<i>b</i>\ud800", "a b"),
        (300 * "<p>" + "deep", "deep"),
        ("<mml:math><mml:mi>x</mml:mi><mml:mo>&lt;</mml:mo><mml:mn>3</mml:mn></mml:math>", "x<3"),
    ],
)
def test_markup_is_removed_and_text_stays(text: str, plain: str) -> None:
    assert remove_markup(text) == plain


def test_headings_begin_lines() -> None:
    assert split_sections("<h3>Aim</h3>To see. <h3>Results</h3>5 %") == ["Aim: To see.", "Results: 5 %"]
