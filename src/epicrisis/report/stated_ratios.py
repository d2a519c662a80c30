"""Find the ratios with intervals that a sentence states, such as `RR 0.35 (95% CI 0.15-0.81)`.

    find_ratio("The risk was lower (odds ratio 0.38; 95% CI 0.20 to 0.74).").value   # 0.38

Only words of the sentence are read. Nothing is computed, converted or pooled.
"""

from __future__ import annotations

import re

from epicrisis.core.studies import StatedRatio
from epicrisis.reading.direction_rules import list_stems

_NUMBER = r"\d{1,3}(?:\.\d{1,4})?"
_NAMES = {
    "or": "odds ratio",
    "rr": "risk ratio",
    "hr": "hazard ratio",
    "irr": "incidence rate ratio",
    "odds ratio": "odds ratio",
    "risk ratio": "risk ratio",
    "relative risk": "relative risk",
    "rate ratio": "rate ratio",
    "incidence rate ratio": "incidence rate ratio",
    "hazard ratio": "hazard ratio",
    "hazards ratio": "hazard ratio",
    "prevalence ratio": "prevalence ratio",
}
_RATIO = re.compile(
    r"\b(?P<adjusted>a|adjusted )?(?:(?P<short>OR|RR|HR|IRR)|"
    r"(?P<long>(?i:odds|risk|incidence rate|rate|hazards?|prevalence) (?i:ratio)s?|(?i:relative risk)s?))\b"
    # A short name in brackets behind the long one, and words such as `was`, `for death`.
    rf"[^.;\d]{{0,40}}?(?P<value>{_NUMBER})"
    r"[^\d]{0,12}?(?:(?P<level>9\d(?:\.\d)?) ?(?:%|per ?cent) ?[^\d]{0,32}?)?"
    rf"(?P<low>{_NUMBER}) ?(?:-|to|,|;) ?(?P<high>{_NUMBER})(?![\d%]| ?%)"
)
_INTERVAL = re.compile(rf"(?<![\d.]){_NUMBER} ?(?:-|to) ?{_NUMBER}(?![\d.])")


def find_ratio(sentence: str, outcome: str = "") -> StatedRatio | None:
    """Return the ratio with an interval that a sentence states, or None. An interval that excludes its ratio is none.

    Of a sentence with several intervals it is the one with most words of the outcome between the ratio before, or the
    beginning, and itself; None if that is less than half of them, or true of two.
    """
    clean = sentence.replace("·", ".").replace("−", "-").replace("–", "-").replace("\u00a0", " ")
    ratios: list[tuple[str, StatedRatio]] = []
    end = 0
    for match in _RATIO.finditer(clean):
        value, low, high = (float(match[name]) for name in ("value", "low", "high"))
        if not 0 < low <= value <= high or low == high:
            continue
        name = (match["short"] or match["long"]).lower()
        measure = _NAMES[name if match["short"] else name.removesuffix("s")]
        if match["adjusted"]:
            measure = f"adjusted {measure}"
        text = f"{match['value']} ({match['low']} to {match['high']})"
        ratio = StatedRatio(measure, value, low, high, text, match["level"] or "")
        ratios.append((clean[end : match.start()], ratio))
        end = match.end()
    if len(ratios) == 1 and len(_INTERVAL.findall(clean)) <= 1:
        return ratios[0][1]
    stems = list_stems(outcome)
    counts = [len(stems & list_stems(words)) for words, _ in ratios]
    most = max(counts, default=0)
    if not most or 2 * most < len(stems) or counts.count(most) > 1:
        return None
    return ratios[counts.index(most)][1]
