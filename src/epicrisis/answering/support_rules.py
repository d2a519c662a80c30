"""Rules for words of a claim without support in its cited sentences.

    for finding in apply_rules("Aspirin raised mortality by 12 %.", "Aspirin lowered mortality by 9 %."):
        print(finding.rule, finding.reason)

A rule that finds nothing says nothing: word by word, sentences cannot be shown to support a claim. How often each rule
is right was measured (docs/design/support.md). Only `PRECISE_RULES` mark claims; the others are only measured.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from epicrisis.quantities import find_quantities, shows_quantity

SupportRule: TypeAlias = Literal["number", "direction", "negation", "drug", "population"]
PRECISE_RULES: tuple[SupportRule, ...] = ("number", "direction")
"""The rules whose findings are more often right than chance on both calibration sets, HealthVer and SciFact train."""


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """Something in a claim that its sentences do not say."""

    rule: SupportRule
    reason: str
    """For the reader, with words of the claim and the sentences."""
    opposed: bool = False
    """Whether the sentences say something else in its place. If not, they are silent about it."""


_DIRECTIONS: Mapping[str, re.Pattern[str]] = {
    "no difference": re.compile(
        r"\b(?:(?:no|not|without|nor|neither|lack of)\b[^.;,]{0,40}?\b(?:differ\w*|effects?|associat\w*|relat\w*|"
        r"correlat\w*|changes?|changed|impacts?|influenc\w*|benefits?|link\w*)|did not differ|unchanged|unaffected|"
        r"similar (?:between|in both|rates?|risks?|outcomes?)|comparable|equivalent|non-?inferior\w*)\b",
        re.IGNORECASE,
    ),
    "decrease": re.compile(
        r"\b(?:decreas\w*|reduc\w*|lower(?!-limb|-dose)\w*|lessen\w*|declin\w*|diminish\w*|fewer|less|dropp\w*|fell|"
        r"falls?|suppress\w*|attenuat\w*|inhibit\w*|down-?regulat\w*|impair\w*|shorten\w*|prevent\w*|protect\w*|"
        r"alleviat\w*|weaken\w*|inferior|smaller|shorter|worse than)\b",
        re.IGNORECASE,
    ),
    "increase": re.compile(
        r"\b(?:increas\w*|rais(?:e|es|ed|ing)|elevat\w*|higher|greater|more|rose|rises?|rising|enhanc\w*|promot\w*|"
        r"up-?regulat\w*|augment\w*|improv\w*|prolong\w*|exacerbat\w*|worsen\w*|aggravat\w*|stimulat\w*|accelerat\w*|"
        r"superior|longer|larger|induc\w*|activat\w*)\b",
        re.IGNORECASE,
    ),
}
"""Words of each direction. "No difference" is read first, because it contains words of the others."""
_NEGATION = re.compile(
    r"\b(?:no|not|never|neither|nor|without|cannot|none|lacks?|lacking|fail(?:s|ed)? to|absence of|unable|unlikely)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
_ADULTS = r"adults?|wom[ae]n|m[ae]n"
_CHILDREN = r"child(?:ren)?|infants?|newborns?|neonat\w+|pa?ediatric|toddlers?"
_POPULATIONS: tuple[Mapping[str, re.Pattern[str]], ...] = (
    {
        "children": re.compile(rf"\b(?:{_CHILDREN})\b", re.IGNORECASE),
        "adults": re.compile(r"\b(?:adults?|elderly|older (?:people|patients|persons))\b", re.IGNORECASE),
    },
    {
        "women": re.compile(r"\b(?:wom[ae]n|females?|pregnan\w+|mothers?)\b", re.IGNORECASE),
        "men": re.compile(r"\b(?:m[ae]n|males?|fathers?)\b", re.IGNORECASE),
    },
    {
        "animals": re.compile(r"\b(?:mice|mouse|rats?|murine|animals?|rabbits?|dogs?|pigs?|monkeys?)\b", re.IGNORECASE),
        "people": re.compile(rf"\b(?:patients?|people|humans?|participants?|{_ADULTS}|{_CHILDREN})\b", re.IGNORECASE),
    },
)
"""Groups of which a sentence about the one is not about the other."""
_DRUG = re.compile(
    r"\b(?:[a-z]+(?:mab|nib|prils?|sartans?|statins?|olol|azole|oxacin|cycline|cillin|mycin|micin|vir|tidine|gliptin|"
    r"gliflozin|glutide|xaban|gatran|parin|barbital|zepam|zolam|setron|triptan|dipine|afil|oxetine|azosin|formin|"
    r"glitazone|dronate|phylline|asone|olone|onide|quine)|aspirin|warfarin|insulin|ibuprofen|paracetamol|"
    r"acetaminophen|morphine|ketamine|propofol|digoxin|amiodarone|lithium|levodopa|methotrexate|cisplatin|tamoxifen|"
    r"thyroxine)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w{3,}")
_STOP_WORD = re.compile(
    r"the|and|are|was|were|been|for|with|that|this|from|has|had|have|can|may|not|than|more|less|which|their|its|these|"
    r"those|does|did|also|but|about|into|between|among|after|before|during"
)
_DIGITS = re.compile(r"\d+(?:\.\d+)?")


def word_overlap(claim: str, evidence: str) -> float:
    """Return the share of the claim's content words that the evidence contains, 0 to 1; 1 without such words."""
    words = set(itertools.filterfalse(_STOP_WORD.fullmatch, _WORD.findall(claim.casefold())))
    return len(words & set(_WORD.findall(evidence.casefold()))) / len(words) if words else 1.0


def apply_rules(
    claim: str, evidence: str, context: str = "", rules: Sequence[SupportRule] = PRECISE_RULES
) -> tuple[RuleFinding, ...]:
    """Return the words of a claim without support in its evidence, the cited sentences.

    Numbers, drugs and groups of people may also be in `context`: the titles of the documents, and the question.
    """
    findings: list[RuleFinding] = []
    for rule in rules:
        findings += _RULES[rule](claim, evidence, context)
    return tuple(findings)


def check_numbers(claim: str, evidence: str, context: str) -> list[RuleFinding]:
    """Return a finding for each quantity of the claim that neither evidence nor context shows.

    Without a unit, a number in words counts things that the claim names ("two studies"), and digits may belong to a
    name (`BRCA 1`, `COVID 19`): such digits need only occur.
    """
    stated = find_quantities(evidence, ones=True)
    available = (*stated, *find_quantities(context, ones=True))
    digits = frozenset(_DIGITS.findall(f"{evidence}\n{context}"))
    findings: list[RuleFinding] = []
    for quantity in find_quantities(claim):
        if not quantity.unit and (not _DIGITS.search(quantity.text) or quantity.text in digits):
            continue
        if any(map(partial(shows_quantity, claim=quantity), available)):
            continue
        rival = next((other.text for other in stated if quantity.unit and other.unit == quantity.unit), "")
        other = f", but {rival}" if rival else ""
        findings.append(RuleFinding("number", f"its sentences do not say {quantity.text}{other}", bool(rival)))
    return findings


def find_directions(text: str) -> frozenset[str]:
    """Return the directions that a text has words for: `increase`, `decrease`, `no difference`."""
    directions: set[str] = set()
    for name, pattern in _DIRECTIONS.items():
        text, count = pattern.subn(" ", text)
        if count:
            directions.add(name)
    return frozenset(directions)


def check_directions(claim: str, evidence: str, context: str) -> list[RuleFinding]:
    """Return a finding if the claim has words of one direction, and the evidence only those of others."""
    claimed, stated = find_directions(claim), find_directions(evidence)
    if len(claimed) != 1 or not stated or claimed & stated:
        return []
    (direction,) = claimed
    directions = " and ".join(sorted(stated))
    return [RuleFinding("direction", f"it speaks of {direction}, its sentences of {directions}", opposed=True)]


def check_negation(claim: str, evidence: str, context: str) -> list[RuleFinding]:
    """Return a finding if only one of the two contains a negation."""
    is_negated = bool(_NEGATION.search(claim))
    if is_negated == bool(_NEGATION.search(evidence)):
        return []
    side = "it contains a negation, its sentences none" if is_negated else "its sentences contain a negation, it none"
    return [RuleFinding("negation", side, opposed=True)]


def check_drugs(claim: str, evidence: str, context: str) -> list[RuleFinding]:
    """Return a finding for each drug of the claim that neither evidence nor context names."""
    text = f"{evidence}\n{context}".casefold()
    findings: list[RuleFinding] = []
    for match in _DRUG.finditer(claim):
        if match[0].casefold().rstrip("s") not in text:
            findings.append(RuleFinding("drug", f"its sentences do not name {match[0]}"))
    return findings


def check_population(claim: str, evidence: str, context: str) -> list[RuleFinding]:
    """Return a finding for each group in the claim where evidence and context name only the opposite group."""
    text = f"{evidence}\n{context}"
    findings: list[RuleFinding] = []
    for groups in _POPULATIONS:
        claimed = [name for name, pattern in groups.items() if pattern.search(claim)]
        stated = [name for name, pattern in groups.items() if pattern.search(text)]
        if len(claimed) == len(stated) == 1 and claimed != stated:
            reason = f"it is about {claimed[0]}, its sentences about {stated[0]}"
            findings.append(RuleFinding("population", reason, opposed=True))
    return findings


_RULES: Mapping[SupportRule, Callable[[str, str, str], list[RuleFinding]]] = {
    "number": check_numbers,
    "direction": check_directions,
    "negation": check_negation,
    "drug": check_drugs,
    "population": check_population,
}
