"""Check a claim against the sentences that it cites: `supported`, `contradicted`, or `not-checked`.

    check_claim("Aspirin raised mortality.", [CitedSentence("Mortality was lower with aspirin (p = 0.01).")])
    # ClaimCheck("contradicted", "it speaks of an increase, its sentence of a decrease")

Two things show support: the words of the claim in one sentence, and the same direction of the same outcome under the
same intervention. The other direction is a contradiction. How often both are right: docs/design/support.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.core.quantities import Quantity, find_quantities, shows_quantity
from epicrisis.core.types import SupportState
from epicrisis.reading.claims import EffectClaim, Sign, compares, list_signs, read_claim, remove_signs
from epicrisis.reading.comparisons import Comparison
from epicrisis.reading.direction_rules import denies_effect, find_direction, list_stems, split_clauses, states_aim
from epicrisis.reading.directions import Effect, EffectReading, describe_effect, read_effect
from epicrisis.reading.mentions import speaks_of_another
from epicrisis.reading.opposites import count_opposites, list_opposites, names_other_kind, read_kinds
from epicrisis.reading.roles import STATES_RESULTS, name_role
from epicrisis.reading.subject_words import list_forms, list_subject_words

_SHORT = re.compile(r"\(([A-Za-z][A-Za-z0-9-]{1,7})\)")
_FULL_WORD = re.compile(r"[A-Za-z0-9]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_REACH = 120
"""Characters before an abbreviation in which its long form is."""


def find_abbreviations(text: str) -> dict[str, str]:
    """Return the long form of each abbreviation in parentheses whose letters begin the words before it."""
    names: dict[str, str] = {}
    for match in _SHORT.finditer(text):
        letters = [letter.lower() for letter in match[1] if letter.isalpha()]
        if sum(letter.isupper() for letter in match[1]) < 2:
            continue
        before = text[max(0, match.start() - _REACH) : match.start()]
        words = list(_FULL_WORD.finditer(before))[-len(letters) :]
        if len(words) == len(letters) and [word[0][0].lower() for word in words] == letters:
            names.setdefault(match[1], before[words[0].start() :].strip())
    return names


def spell_out(text: str, names: Mapping[str, str]) -> str:
    """Return a text with the long form in the place of each abbreviation, unless it has the long form already."""
    lower = text.lower()
    return _NAME.sub(
        lambda match: names[match[0]] if match[0] in names and names[match[0]].lower() not in lower else match[0], text
    )


SAME_WORDS = 0.7
"""Share of a claim's words in one sentence from which the sentence says the same, if nothing differs that matters."""
ALL_WORDS = 0.9
"""The same for a claim on no effect, of which each word may be what it says: "can be taught"."""
MIN_WORDS, MIN_EFFECT_WORDS = 4, 3
"""Words of a claim that the rule of the same words needs, and of one whose outcome and intervention are known."""
MIN_VERBATIM_WORDS = 3
MIN_PROBABILITY = 0.95
"""Of the direction of a sentence."""
MAX_DOUBT = 0.8
"""Of a direction that is not the rules', with the sides in either order."""
SAME_OUTCOME = 0.5
"""Share of the words of a claim's outcome in a sentence that may be cited for its direction alone."""
MIN_OUTCOME, MIN_INTERVENTION = 0.75, 0.25
"""Shares of the words of a claim's outcome and intervention that its sentence has. The title may name the latter."""
_WORD = re.compile(r"[^\W_]+")
_ASIDE = re.compile(r"\([^()]{0,200}\)")
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_STOP_TEXT = (
    "a an the of in on at to for with and or by from as is are was were be been than that this these those it its "
    "their can may might could also which who has have had do does did no not nor into between among within during "
    "via such both there"
)
_STOP = frozenset(_STOP_TEXT.split())
_NEGATION = re.compile(
    r"\b(?:no|not|never|neither|nor|without|cannot|none|lacks?|lacking|fail(?:s|ed)? to|absence of|unable|unlikely)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
_TURNING = re.compile(
    r"\b(?:(?:un|in|non|dis|de)[a-z]{4,}|negativ\w*|positiv\w*|low|high|only|all|always|most|least|earl\w+|late\w*|"
    r"depend\w*|lack\w*|absen\w*|loss|before|after|cures?|curing)\b",
    re.IGNORECASE,
)
"""Words that turn what a sentence says: a claim has them if its sentence has them."""
_UNSURE = re.compile(
    r"\b(?:could|may|might|whether|assumed|hypothes\w+|unclear|unknown|uncertain|no (?:research|study|studies))\b",
    re.IGNORECASE,
)
"""Words of a sentence that states no result: a claim that has none is not shown by it."""
_INTRODUCES = re.compile(r"\b(?:that|whether|if|could|may|might|not|no|to)\W*$")
"""What stands before copied words that the sentence does not itself state: `it is assumed that`."""
_WITHOUT = re.compile(
    r"\b(?:lack\w*|deficien\w*|deplet\w*|absen\w*|loss|without|knock\w*|inhibit\w*|remov\w*|withdraw\w*|"
    r"discontinu\w*|stopp\w*|block\w*|silenc\w*|non-?us\w*|avoid\w*)\b",
    re.IGNORECASE,
)
"""Words by which an intervention is not there."""
_DRUG = re.compile(
    r"\b(?:[a-z]+(?:mab|nib|prils?|sartans?|statins?|olol|azole|oxacin|cycline|cillin|mycin|micin|vir|tidine|gliptin|"
    r"gliflozin|glutide|xaban|gatran|parin|barbital|zepam|zolam|setron|triptan|dipine|afil|oxetine|azosin|formin|"
    r"glitazone|dronate|phylline|asone|olone|onide|quine)|aspirin|warfarin|insulin|ibuprofen|paracetamol|"
    r"acetaminophen|morphine|ketamine|propofol|digoxin|amiodarone|lithium|levodopa|methotrexate|cisplatin|tamoxifen|"
    r"thyroxine)\b",
    re.IGNORECASE,
)
_SUBJECT_END = re.compile(
    r"\b(?:is|are|was|were|has|have|had|do|does|did|may|can|could|will|would|caus\w+|lead\w*|led|show\w*|"
    r"increas\w+|reduc\w+|decreas\w+|lower\w*|improv\w+|prevent\w*)\b",
    re.IGNORECASE,
)
"""The first verb of a claim: the words before it name its subject."""
_NO_RESULT = re.compile(
    r"\b(?:(?:funded|sponsored|financed) by|supported by (?:an? |the )?(?:\w+ ){0,4}(?:grants?|foundation|ministry|"
    r"council|institutes?|fund)|grants? (?:from|no|number)|conflicts? of interest|competing interests?|registered "
    r"(?:at|with|in|as)|trial registration|clinicaltrials\.gov|informed consent|ethics committee|will be (?:\w+ )?"
    r"(?:measured|assessed|randomi[sz]ed|compared|enrolled))\b|\?\s*$",
    re.IGNORECASE,
)
_OTHER_HEADING = re.compile(r"funding|sponsor|acknowledg|interest|registration|references", re.IGNORECASE)
_PROCEDURE = re.compile(
    r"\b(?:were|was|being) (?:\w+ )?(?:randomi[sz]ed|randomly|recruited|enrolled|allocated|assigned|invited|measured|"
    r"assessed|collected|analy[sz]ed|performed|evaluated|recorded|calculated|searched|administered|instructed|included|"
    r"excluded|studied|treated|given|compared|divided|determined|obtained|investigated|examined|followed|tested|used|"
    r"carried out|undertaken|conducted|defined|selected|reviewed|a (?:\w+ )?(?:study|trial|survey|review|analysis))\b|"
    r"\b(?:received|underwent|completed)\b|\b(?:in this|in the present|this) (?:\w+ ){0,2}(?:study|trial)\b|"
    r"\bwe (?:\w+ )?(?:randomi[sz]ed|recruited|enrolled|allocated|assigned|searched|conducted|performed|measured|"
    r"assessed|evaluated|compared|analy[sz]ed|used|reviewed|studied|investigated|examined|describe|report|present)\b|"
    r"\b(?:outcome measures?|end-?points? (?:was|were)|retrospective|prospective|cross-sectional)\b",
    re.IGNORECASE,
)
_FINDING = re.compile(
    r"\bp ?[=<>]|\b\d+(?:\.\d+)? ?%|\b(?:significan\w+|higher|lower|fewer|increased|decreased|reduced|improved|"
    r"differ\w*|associated|found|showed|superior|similar)\b",
    re.IGNORECASE,
)
_TURNED: Mapping[Effect, Effect] = {
    "increased": "decreased",
    "decreased": "increased",
    "no-difference": "no-difference",
}
_OPPOSITE_SIGNS: frozenset[frozenset[Sign]] = frozenset((frozenset(("up", "down")), frozenset(("better", "worse"))))


@dataclass(frozen=True, slots=True)
class CitedSentence:
    """A sentence of a document."""

    text: str
    title: str = ""
    """Of the document."""
    document: str = ""
    """The text of the document that explains its abbreviations."""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """What sentences say of a claim."""

    state: SupportState = "not-checked"
    reason: str = ""
    """Why it is contradicted."""
    is_verbatim: bool = False
    """Whether the sentences have the words of the claim, one behind the other."""


NOT_CHECKED = ClaimCheck()


def check_claim(claim: str, sentences: Sequence[CitedSentence]) -> ClaimCheck:
    """Return what sentences say of a claim. Sentences that disagree about it show nothing."""
    if is_copied(claim, "\n".join(sentence.text for sentence in sentences)):
        return ClaimCheck("supported", is_verbatim=True)
    checks: list[ClaimCheck] = []
    for sentence in sentences:
        names = find_abbreviations(f"{sentence.title}\n{sentence.document}\n{sentence.text}\n{claim}")
        spelled = replace(sentence, text=spell_out(sentence.text, names))
        full = spell_out(claim, names)
        checks.append(_check_sentence(full, read_claim(full), spelled))
    states = {check.state for check in checks if check.state != "not-checked"}
    if len(states) != 1:
        return NOT_CHECKED
    return next(check for check in checks if check.state in states)


def _check_sentence(claim: str, effect: EffectClaim | None, sentence: CitedSentence) -> ClaimCheck:
    is_unsure = _UNSURE.search(sentence.text) is not None and _UNSURE.search(claim) is None
    is_other = count_opposites(list_opposites(claim), sentence.text) > 0
    is_other = is_other or names_other_kind(read_kinds(claim), sentence.text, sentence.title)
    if is_unsure or states_aim(sentence.text) or is_other:
        return NOT_CHECKED
    if effect is not None and speaks_of_another(sentence.text, effect.comparison):
        return NOT_CHECKED
    reading = None if effect is None else _read_sentence(effect, sentence)
    if effect is not None and reading is not None:
        return _compare_directions(effect, reading)
    if compares(claim):
        return NOT_CHECKED
    clauses = list(split_clauses(sentence.text))
    if effect is not None:
        outcome = list_stems(effect.comparison.outcome)
        clauses = [clause for clause in clauses if outcome <= list_stems(clause)]
    checks = [compare_words(claim, effect, clause) for clause in clauses]
    return next((check for check in checks if check.state != "not-checked"), NOT_CHECKED)


def shares_direction(claim: str, sentence: CitedSentence) -> bool:
    """Return whether a sentence with half of the words of a claim's outcome surely has the claim's direction."""
    names = find_abbreviations(f"{sentence.title}\n{sentence.document}\n{sentence.text}\n{claim}")
    effect = read_claim(spell_out(claim, names))
    if effect is None or states_aim(sentence.text) or _UNSURE.search(sentence.text):
        return False
    text = spell_out(sentence.text, names)
    if speaks_of_another(text, effect.comparison):
        return False
    reading = _read_sentence(effect, replace(sentence, text=text), SAME_OUTCOME)
    return reading is not None and reading.direction == effect.direction


def _read_sentence(claim: EffectClaim, sentence: CitedSentence, least: float = MIN_OUTCOME) -> EffectReading | None:
    """Return the direction of the claim's outcome in a sentence, if it names both sides of the claim and is sure."""
    comparison, names = claim.comparison, list_stems(sentence.text)
    titled = names | list_stems(sentence.title)
    intervention = list_stems(comparison.intervention)
    if _cover(list_stems(comparison.outcome), names) < least or _cover(intervention, titled) < MIN_INTERVENTION:
        return None
    if (_WITHOUT.search(comparison.intervention) is None) != (_WITHOUT.search(sentence.text) is None):
        return None
    reading = _read_both_ways(sentence.text, comparison)
    return None if reading is None or reading.probability < MIN_PROBABILITY else reading


def _read_both_ways(sentence: str, comparison: Comparison) -> EffectReading | None:
    """Return the direction that the rules read, too.

    A sentence that names both sides is read in either order, and neither reading may be another direction with a high
    probability. Of a sentence with the comparator alone it is not known which side it speaks of. One that compares with
    something else says nothing of this comparator.
    """
    reading = read_effect(sentence, comparison)
    intervention, comparator = list_stems(comparison.intervention), list_stems(comparison.comparator)
    names = list_stems(sentence)
    if comparator and not names & (intervention - comparator):
        return None
    if not names & (comparator - intervention):
        return reading if reading.by_rules and not (comparator and compares(sentence)) else None
    turned_comparison = Comparison(comparison.outcome, comparison.comparator, comparison.intervention)
    direction = find_direction(sentence, comparison)
    if direction == "none":
        return None
    turned = read_effect(sentence, turned_comparison)
    readings = (reading, replace(turned, direction=_TURNED[turned.direction]))
    if any(other.direction != direction and other.probability > MAX_DOUBT for other in readings):
        return None
    probability = max((other.probability for other in readings if other.direction == direction), default=0.0)
    return EffectReading(direction, probability, by_rules=True)


def _compare_directions(claim: EffectClaim, reading: EffectReading) -> ClaimCheck:
    if claim.denied is not None and reading.direction not in ("no-difference", claim.denied):
        # `Does not reduce` is true of an increase, too, but says less.
        return NOT_CHECKED
    if claim.direction == reading.direction:
        return ClaimCheck("supported")
    ours, theirs = describe_effect(claim.direction), describe_effect(reading.direction)
    return ClaimCheck("contradicted", f"it speaks of {ours}, its sentence of {theirs}")


def _cover(words: frozenset[str], names: frozenset[str]) -> float:
    return len(words & names) / len(words) if words else 1.0


def compare_words(claim: str, effect: EffectClaim | None, clause: str) -> ClaimCheck:
    """Return what a clause with nearly all words of a claim says of it.

    It supports the claim if directions, negation, numbers and words that turn the meaning are the same, and contradicts
    it if the opposite direction alone differs, or the negation alone in a clause with all words.
    """
    words = _list_words(_NEGATION.sub(" ", remove_signs(claim)))
    stems = {_stem(word) for word in _list_words(clause)}
    missing = [word for word in words if _stem(word) not in stems]
    fewest = MIN_WORDS if effect is None else MIN_EFFECT_WORDS
    share = ALL_WORDS if effect is None else SAME_WORDS
    if len(words) < fewest or len(words) - len(missing) < share * len(words):
        return NOT_CHECKED
    if any(_DIGITS.search(word) for word in missing) or (_WITHOUT.search(claim) is None) != (
        _WITHOUT.search(clause) is None
    ):
        return NOT_CHECKED
    signs, stated = list_signs(claim), list_signs(clause)
    is_negated, is_denied = (_NEGATION.search(text) is not None for text in (claim, clause))
    if is_negated == is_denied and signs == stated and denies_effect(claim) == denies_effect(clause):
        return ClaimCheck("supported") if _turns_nothing(claim, clause, missing) else NOT_CHECKED
    if not is_negated and not is_denied and len(signs) == len(stated) == 1 and signs | stated in _OPPOSITE_SIGNS:
        return ClaimCheck("contradicted", "it says the opposite of its sentence")
    if effect is not None and is_negated != is_denied and signs == stated and not missing:
        sides = ("it", "its sentence") if is_negated else ("its sentence", "it")
        return ClaimCheck("contradicted", f"{sides[0]} contains a negation, {sides[1]} none")
    return NOT_CHECKED


def _turns_nothing(claim: str, clause: str, missing: Sequence[str]) -> bool:
    """Return whether no word that turns the meaning, and no number, stands in the claim alone."""
    turning, stated = ({word.lower() for word in _TURNING.findall(text)} for text in (claim, clause))
    is_turned = any(_TURNING.match(word) for word in missing) or not turning <= stated
    return not is_turned and not find_missing_numbers(claim, clause)


def _list_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _STOP]


def _stem(word: str) -> str:
    """Return the first letters of a word, more of a long one. A name with digits stays whole."""
    if _DIGITS.search(word):
        return word
    return word[:5] if len(word) < 8 else word[:6]


def is_copied(claim: str, sentences: str) -> bool:
    """Return whether the sentences contain the complete words of the claim, apart from case and the last full stop."""
    words = " ".join(claim.casefold().split()).rstrip(".")
    text = " ".join(sentences.casefold().split())
    if len(words.split()) < MIN_VERBATIM_WORDS:
        return False
    start = text.find(words)
    while start >= 0:
        before, after = text[:start], text[start + len(words) :][:2]
        is_whole = not before[-1:].isalnum() and not after[:1].isalnum()
        is_whole = is_whole and not (after[:1] in (".", ",") and after[1:].isdigit())
        if is_whole and _INTRODUCES.search(before) is None:
            return True
        start = text.find(words, start + 1)
    return False


def find_missing_numbers(claim: str, sentences: str, context: str = "", document: str = "") -> list[str]:
    """Return the quantities of a claim that neither its sentences nor the context show.

    A dose or a time, and a number in parentheses or in the name of an intervention, may stand anywhere in the document;
    percentages may not. Without a unit, a number in words counts things that the claim names ("two studies"), and
    digits may belong to a name (`BRCA 1`, `COVID 19`): such digits need only occur.
    """
    digits = frozenset(_DIGITS.findall(f"{sentences}\n{context}"))
    quantities: list[Quantity] = []
    for quantity in find_quantities(claim):
        if quantity.unit or (_DIGITS.search(quantity.text) and quantity.text not in digits):
            quantities.append(quantity)
    if not quantities:
        return []
    stated = (*find_quantities(sentences, ones=True), *find_quantities(context, ones=True))
    described = find_quantities(document, ones=True)
    effect = read_claim(claim)
    details = _ASIDE.findall(claim)
    if effect is not None:
        details += [effect.comparison.intervention, effect.comparison.comparator]
    missing: list[str] = []
    for quantity in quantities:
        # A bound such as that of a p-value shows no value.
        is_detail = quantity.unit != "%" and (quantity.unit or any(quantity.text in detail for detail in details))
        shown = [other for other in stated if _is_bound(quantity) or not _is_bound(other)]
        if is_detail:
            shown += described
        if not any(shows_quantity(other, claim=quantity) for other in shown):
            missing.append(quantity.text)
    return missing


def _is_bound(quantity: Quantity) -> bool:
    return math.isinf(quantity.low) or math.isinf(quantity.high)


def find_drugs(text: str) -> list[str]:
    """Return the drugs that a text names, each once, by the endings of their names and a short list, and vitamins."""
    drugs = [match[0] for match in _DRUG.finditer(text)]
    drugs += [f"vitamin {kind.upper()}" for kind in sorted(read_kinds(text).get("vitamin", ()))]
    return list(dict.fromkeys(drugs))


def find_missing_drugs(claim: str, text: str) -> list[str]:
    """Return the drugs of a claim that a text does not name."""
    return [name for name in find_drugs(claim) if not has_drug(name, text)]


def has_drug(name: str, text: str) -> bool:
    """Return whether a text names a drug, one that `find_drugs` found, in the singular or in a list of vitamins."""
    if kinds := read_kinds(name).get("vitamin"):
        return kinds <= read_kinds(text).get("vitamin", frozenset())
    return name.casefold().rstrip("s") in text.casefold()


def find_missing_subject(claim: str, text: str, analyze: Callable[[str], Sequence[str]]) -> list[str]:
    """Return the words that name the subject of a claim, such as its intervention, and that a text has in no form.

    Words that are common in research articles are not meant.
    """
    effect = read_claim(claim)
    if effect is not None:
        subject = effect.comparison.intervention
    else:
        verb = _SUBJECT_END.search(claim)
        subject = "" if verb is None else claim[: verb.start()]
    beginnings = {_stem(word.lower()) for word in _WORD.findall(text)}
    missing: list[str] = []
    for word in list_subject_words(subject, analyze):
        if not any(_stem(form.lower()) in beginnings for form in list_forms(word)):
            missing.append(word)
    return missing


def states_result(sentence: str, heading: str = "") -> bool:
    """Return whether a sentence below a heading may state a result: no aim, method, funding or plan."""
    if _NO_RESULT.search(sentence) or states_aim(sentence):
        return False
    role = name_role(heading)
    if role in STATES_RESULTS:
        return True
    is_other = role is not None or _OTHER_HEADING.search(heading) is not None or _PROCEDURE.search(sentence) is not None
    return not is_other or _FINDING.search(sentence) is not None
