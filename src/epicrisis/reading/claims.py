"""Read what a claim says of an effect: the direction of an outcome under an intervention.

    read_claim("Aspirin reduces the risk of stroke compared with placebo.")
    # EffectClaim(Comparison("risk of stroke", "Aspirin", "placebo"), "decreased")

A claim of another form, a question, and a claim with two directions are not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from epicrisis.reading.comparisons import Comparison
from epicrisis.reading.direction_rules import is_unwanted, list_stems
from epicrisis.reading.directions import Effect

Sign: TypeAlias = Literal["up", "down", "better", "worse", "any"]
"""What a word says of an outcome. `any`: a change, without its direction (`affects`)."""
_SIGN_WORDS: dict[Sign, str] = {
    "up": r"increas(?:es?|ed|ing)|rais(?:es?|ed|ing)|elevat(?:es?|ed|ing)|prolong(?:s|ed|ing)?|"
    r"enhanc(?:es?|ed|ing)|augment(?:s|ed)?|promot(?:es?|ed|ing)|lengthen(?:s|ed)?|stimulat(?:es?|ed)|"
    r"accelerat(?:es?|ed)|induc(?:es?|ed)|higher|greater|more|longer|larger|rises?",
    "down": r"decreas(?:es?|ed|ing)|reduc(?:es?|ed|ing|tions?)|lower(?:s|ed|ing)?|shorten(?:s|ed|ing)?|"
    r"lessen(?:s|ed)?|diminish(?:es|ed)?|attenuat(?:es?|ed)|suppress(?:es|ed)?|inhibit(?:s|ed)?|"
    r"prevent(?:s|ed|ing)?|alleviat(?:es?|ed|ing)|reliev(?:es?|ed|ing)|protect(?:s|ed)? against|less|fewer|shorter|"
    r"smaller|declines?",
    "better": r"improv(?:es?|ed|ing|ements?)|better|superior|more effective|more efficacious|benefits?",
    "worse": r"worsen(?:s|ed|ing)?|aggravat(?:es?|ed)|exacerbat(?:es?|ed)|worse|inferior|less effective|poorer|"
    r"less efficacious",
    "any": r"affect(?:s|ed)?|influence[sd]?|change[sd]?|alter(?:s|ed)?|impact(?:s|ed)?",
}
_ORDER: tuple[Sign, ...] = ("better", "worse", "up", "down", "any")
"""`more effective` is read before `more`."""
_SIGNS = {sign: re.compile(rf"\b(?:{_SIGN_WORDS[sign]})\b", re.IGNORECASE) for sign in _ORDER}
_STEMS: dict[Sign, re.Pattern[str]] = {
    "up": re.compile(
        r"\b(?:increas|elevat|prolong|enhanc|augment|promot|stimulat|accelerat|induc|activat|potentiat|higher|greater|more|longer|"
        r"larger|faster|quicker|rise|rais|gain|up-?regulat)\w*",
        re.IGNORECASE,
    ),
    "down": re.compile(
        r"\b(?:decreas|reduc|lower|shorte|lessen|diminish|attenuat|suppress|inhibit|prevent|alleviat|reliev|protect|less|"
        r"fewer|smaller|slower|declin|impair|block|loss|lack|down-?regulat|deplet)\w*",
        re.IGNORECASE,
    ),
    "better": re.compile(r"\b(?:improv|better|superior|effective|efficac|benefi)\w*", re.IGNORECASE),
    "worse": re.compile(r"\b(?:wors|aggravat|exacerbat|inferior|poor)\w*", re.IGNORECASE),
}
_ANY_SIGN = "|".join(_SIGN_WORDS[sign] for sign in _ORDER)
_ADVERBS = (
    r"(?:(?:an?|the|also|significantly|significant|statistically|markedly|marked|substantially|substantial|"
    r"considerably|effectively|slightly|moderately|clinically|much) ){0,3}"
)
_MODAL = r"(?:(?:may|might|can|could|will|would) )?"
_NOT = (
    r"(?P<no>(?:(?:does|did|do|could|can|would|will|may|might) not|doesn't|didn't|don't|cannot|fails? to|failed to) )?"
)
_IS = r"(?:is|are|was|were)"
_IS_NOT = rf"{_IS} (?P<no>not )?"
_AGAINST = re.compile(
    r",? (?:(?:when |as )?compared (?:with|to)|in comparison (?:with|to)|versus|vs\.?|rather than|relative to|than"
    r"(?: that)?(?: (?:with|in|after|by|for|of|under|among|to))?) ",
    re.IGNORECASE,
)
_IN_TERMS_OF = re.compile(r",? (?:in terms of|regarding|with respect to|in|for|on|at) ", re.IGNORECASE)
_AND = re.compile(r" (?:and|or|to|versus|vs\.?) (?:(?:with|in|after|by) )?", re.IGNORECASE)
_BETWEEN = re.compile(r"\bbetween ", re.IGNORECASE)
_LEAD = re.compile(
    r"^[^.]{0,60}\b(?:documents?|study|studies|authors?|trials?|evidence|results?|sentences?|abstracts?|sources?|data)\b"
    r"[^.]{0,40}\b(?:states?|stated|shows?|showed|shown|suggests?|suggested|indicates?|indicated|found|finds?|"
    r"concludes?|concluded|reports?|reported|is|was) that |^(?:yes|no|overall|thus|therefore|in conclusion|in summary|"
    r"however|moreover)[,:.] ",
    re.IGNORECASE,
)
_FRONTED = re.compile(r"^(?:when )?(compared (?:with|to) [^,]{1,100}), (.+)$", re.IGNORECASE)
_ASIDE = re.compile(r" ?[(\[][^()\[\]]{0,200}[)\]]")
_SHORT_NAME = re.compile(r" ?\(([A-Z][A-Za-z0-9-]{1,7})\)")
_OPENING = re.compile(r"^(?:the|an?|in|for|of|on|to) (?:the )?", re.IGNORECASE)
_NO_PART = re.compile(
    r"\b(?:is|are|was|were|has|have|had|does|do|did|may|can|could|that|which|who|whose|not|no|but|whether|while|whereas|"
    r"although|cannot|unclear|unknown)\b|[?;:]|^\d+ (?:hours|days|weeks|months|years)\b",
    re.IGNORECASE,
)
"""Words of a clause, and not of the name of an intervention, a comparator or an outcome."""

_NO_DIFFERENCE = re.compile(rf"\bno {_ADVERBS}differences? ", re.IGNORECASE)
_FOUND = re.compile(r" (?:was|were) (?:found|seen|observed|detected|noted) *$", re.IGNORECASE)
_SAME = re.compile(
    rf" (?:(?:did|does|do) not {_ADVERBS}differ|{_IS} (?:not {_ADVERBS}different|similar|comparable|the same|equal)) "
    r"(?:between|with|in|after|for|under) ",
    re.IGNORECASE,
)
_NO_EFFECT = re.compile(
    rf" {_MODAL}(?:has|have|had|shows?|showed) no {_ADVERBS}(?:effects?|impact|influence|benefits?) "
    rf"(?:on|for|in|regarding) | {_IS} (?:not {_ADVERBS}(?:associated with|related to)|unrelated to) ",
    re.IGNORECASE,
)
_ASSOCIATED = re.compile(
    rf" {_IS_NOT}{_ADVERBS}associated with {_ADVERBS}(?P<sign>{_ANY_SIGN}) (?:in |of )?", re.IGNORECASE
)
_CAUSES = re.compile(
    rf" {_MODAL}{_NOT}(?:leads?|led|results?|resulted|causes?|caused|produces?|produced|shows?|showed|has|had|have|"
    rf"provides?|provided|gives?|gave|offers?|offered) (?:to |in )?(?P<none>no )?{_ADVERBS}(?P<sign>{_ANY_SIGN}) "
    r"(?:in |of )?",
    re.IGNORECASE,
)
_CHANGES = re.compile(rf" {_MODAL}{_NOT}{_ADVERBS}(?P<sign>{_ANY_SIGN}) ", re.IGNORECASE)
_IS_CHANGED = re.compile(
    rf" {_IS_NOT}{_ADVERBS}(?!more effective|less effective|more efficacious|less efficacious|superior|inferior)"
    rf"(?P<sign>{_ANY_SIGN}) (?:frequent |common |likely |often )?"
    r"(?:with|in|by|after|under|among|for|following|on|when using|during) ",
    re.IGNORECASE,
)
_IS_BETTER = re.compile(
    rf" {_IS_NOT}{_ADVERBS}(?P<sign>{_SIGN_WORDS['better']}|{_SIGN_WORDS['worse']}) "
    r"(?:than|to|compared with|compared to|in comparison with) ",
    re.IGNORECASE,
)
_BY = re.compile(rf"^(?P<sign>{_ANY_SIGN}) ", re.IGNORECASE)
_MAX_CHARACTERS = 400
_MAX_WORDS = 20
"""A longer name of an intervention, comparator or outcome is a clause."""


@dataclass(frozen=True, slots=True)
class EffectClaim:
    """The effect that a claim states."""

    comparison: Comparison
    direction: Effect
    denied: Effect | None = None
    """The direction that a claim denies, as in `does not reduce`. Its own is then `no-difference`."""


def read_claim(text: str) -> EffectClaim | None:
    """Return the effect that a claim states, or None if it is of another form."""
    clean = _ASIDE.sub("", _SHORT_NAME.sub(r" \1", " ".join(text.split()))).strip(" .")
    if len(clean) > _MAX_CHARACTERS:
        return None
    clean = _FRONTED.sub(r"\2 \1", _LEAD.sub("", clean))
    for reader in (
        _read_no_difference,
        _read_same,
        _read_better,
        _read_changed,
        _read_associated,
        _read_effect,
        _read_verb,
    ):
        claim = reader(clean)
        if claim is not None:
            return claim if _is_whole(claim.comparison) else None
    return None


def compares(text: str) -> bool:
    """Return whether a text compares two sides, so that their order matters."""
    return _AGAINST.search(text) is not None or _BETWEEN.search(text) is not None


def list_signs(text: str) -> frozenset[Sign]:
    """Return which directions the words of a text name, in any order."""
    return frozenset(sign for sign, pattern in _STEMS.items() if pattern.search(text))


def remove_signs(text: str) -> str:
    """Return a text without the words that name a direction."""
    for pattern in _STEMS.values():
        text = pattern.sub(" ", text)
    return text


def are_opposed(claim: EffectClaim, other: EffectClaim) -> bool:
    """Return whether two claims on one outcome say the opposite: another direction, or the same of the other side."""
    ours, theirs = claim.comparison, other.comparison
    if not _are_same(ours.outcome, theirs.outcome):
        return False
    directions = {claim.direction, other.direction}
    if _are_same(ours.intervention, theirs.intervention):
        if claim.denied is None and other.denied is None:
            return len(directions) > 1
        return claim.denied == other.direction or other.denied == claim.direction
    is_reversed = _are_same(ours.intervention, theirs.comparator) and (
        not ours.comparator or _are_same(ours.comparator, theirs.intervention)
    )
    return is_reversed and len(directions) == 1 and "no-difference" not in directions


def _are_same(name: str, other: str) -> bool:
    """Return whether two names share most of their words."""
    ours, theirs = list_stems(name), list_stems(other)
    return bool(ours and theirs) and 2 * len(ours & theirs) > max(len(ours), len(theirs))


def _is_whole(comparison: Comparison) -> bool:
    """Return whether the parts are names: without verbs, and without a second direction."""
    parts = comparison.outcome, comparison.intervention, comparison.comparator
    if not comparison.outcome or not comparison.intervention:
        return False
    for part in parts:
        if _NO_PART.search(part) or len(part.split()) > _MAX_WORDS or any(_SIGNS[sign].search(part) for sign in _STEMS):
            return False
    return bool(list_stems(comparison.outcome) and list_stems(comparison.intervention))


def _read_no_difference(text: str) -> EffectClaim | None:
    """Read `no difference in O between I and C`, and `no difference was found between I and C in O`."""
    match = _NO_DIFFERENCE.search(text)
    before, sides = _split(_BETWEEN, text[match.end() :] if match else "")
    if not sides:
        return None
    outcome = _FOUND.sub("", f" {before}")
    intervention, comparator = _split(_AND, sides)
    if not outcome.strip():
        comparator, outcome = _split(_IN_TERMS_OF, comparator)
    return EffectClaim(_compare(outcome, intervention, comparator), "no-difference")


def _read_same(text: str) -> EffectClaim | None:
    """Read `O did not differ between I and C`."""
    match = _SAME.search(text)
    if match is None:
        return None
    intervention, comparator = _split(_AND, text[match.end() :])
    return EffectClaim(_compare(text[: match.start()], intervention, comparator), "no-difference")


def _read_better(text: str) -> EffectClaim | None:
    """Read `I is better than C for O`, and `I is superior to C in reducing O`."""
    match = _IS_BETTER.search(text)
    comparator, outcome = _split(_IN_TERMS_OF, text[match.end() :]) if match else ("", "")
    if match is None or not outcome:
        return None
    sign = _read_sign(match["sign"])
    verb = _BY.match(outcome)
    if verb is not None:
        outcome = outcome[verb.end() :]
        sign = _read_sign(verb["sign"]) if sign == "better" else _reverse(_read_sign(verb["sign"]))
    return _state(_compare(outcome, text[: match.start()], comparator), sign, bool(match["no"]))


def _read_changed(text: str) -> EffectClaim | None:
    """Read `O was reduced with I`, and `O was lower (less frequent) with I than with C`."""
    match = _IS_CHANGED.search(text)
    if match is None:
        return None
    intervention, comparator = _split(_AGAINST, text[match.end() :])
    return _state(
        _compare(text[: match.start()], intervention, comparator), _read_sign(match["sign"]), bool(match["no"])
    )


def _read_associated(text: str) -> EffectClaim | None:
    """Read `I is associated with lower O`."""
    match = _ASSOCIATED.search(text)
    return None if match is None else _read_object(text, match)


def _read_effect(text: str) -> EffectClaim | None:
    """Read `I had no effect on O`, and `I leads to a reduction in O compared with C`."""
    match = _NO_EFFECT.search(text)
    if match is None:
        match = _CAUSES.search(text)
        return None if match is None else _read_object(text, match)
    outcome, comparator = _split(_AGAINST, text[match.end() :])
    return EffectClaim(_compare(outcome, text[: match.start()], comparator), "no-difference")


def _read_verb(text: str) -> EffectClaim | None:
    """Read `I reduces O compared with C`."""
    match = _CHANGES.search(text)
    return None if match is None else _read_object(text, match)


def _read_object(text: str, match: re.Match[str]) -> EffectClaim | None:
    groups = match.groupdict()
    intervention, comparator = _split(_AGAINST, text[: match.start()])
    outcome, other = _split(_AGAINST, text[match.end() :])
    is_negated = bool(groups.get("no") or groups.get("none"))
    return _state(_compare(outcome, intervention, comparator or other), _read_sign(match["sign"]), is_negated)


def _state(comparison: Comparison, sign: Sign, is_negated: bool) -> EffectClaim | None:
    """Return the claim with its direction; None for a change without one."""
    if sign == "any":
        return EffectClaim(comparison, "no-difference") if is_negated else None
    direction: Effect = "increased" if sign == "up" else "decreased"
    if sign in ("better", "worse"):
        direction = "decreased" if (sign == "better") == is_unwanted(comparison.outcome) else "increased"
    return EffectClaim(comparison, "no-difference", direction) if is_negated else EffectClaim(comparison, direction)


def _read_sign(words: str) -> Sign:
    return next(sign for sign in _ORDER if _SIGNS[sign].fullmatch(words))


def _reverse(sign: Sign) -> Sign:
    opposites: dict[Sign, Sign] = {"up": "down", "down": "up", "better": "worse", "worse": "better", "any": "any"}
    return opposites[sign]


def _split(pattern: re.Pattern[str], text: str) -> tuple[str, str]:
    """Return the text before and after the first match; the second is empty without one."""
    match = pattern.search(text)
    return (text, "") if match is None else (text[: match.start()], text[match.end() :])


def _compare(outcome: str, intervention: str, comparator: str) -> Comparison:
    return Comparison(*(_OPENING.sub("", part.strip(" ,.")) for part in (outcome, intervention, comparator)))
