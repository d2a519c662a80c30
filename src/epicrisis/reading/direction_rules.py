"""Read by rules the direction of an outcome in a sentence: increased, decreased, or no difference.

    comparison = read_comparison("Does aspirin reduce the risk of stroke?")
    find_direction("Stroke was significantly less frequent with aspirin (p = 0.01).", comparison)  # "decreased"

The direction is that of the outcome under the intervention, as in Evidence Inference. How often the rules are right:
docs/design/conflicts.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, TypeAlias

from epicrisis.reading.comparisons import Comparison

Direction: TypeAlias = Literal["increased", "decreased", "no-difference", "none"]
"""`none`: the text does not say, or the rules cannot read it."""

SIGNIFICANT_P = 0.05
"""A p-value of this or more shows no difference."""
STEM_CHARACTERS = 5
"""Words with the same first letters, so many, count as one: `infection`, `infected`."""

_WORD = re.compile(r"[a-z0-9][a-z0-9'-]*")
_CLAUSE_END = re.compile(
    r"(?<=[.;:?!])(?<!\bvs\.)\s|\n|,? (?:but|whereas|while|although|however|though)\b|, and (?=\w{1,30} (?:\w{1,30} )?"
    r"(?:was|were|had|did|showed)\b)",
    re.IGNORECASE,
)
_COMMON_SUBJECT = re.compile(
    r",? (?:and|or|yet) (?=(?:(?:also|then|thus|significantly) )?"
    r"(?:did|does|do|had|has|have|was|were|is|are|caused|showed|led|resulted|produced|gave)\b)",
    re.IGNORECASE,
)
"""Where a sentence goes on about the same subject with another verb."""
_FILLER_TEXT = (
    "a an the of in on at to for with without and or by from as is are was were be been than that this these those "
    "group groups arm patients patient participants subjects treatment therapy after before during between among "
    "per day days week weeks month months year years mg number rate level levels score scores mean total change "
    "changes either both other all any each only plus compared comparing versus effect effects does do did has have "
    "had higher lower same difference significantly increase increased decrease decreased reduce reduced reduction "
    "improve improved improvement risk likelihood incidence"
)
_FILLERS = frozenset(_FILLER_TEXT.split())
_NO_DIFFERENCE = re.compile(
    r"\bno(?:t any| other| overall| clear| consistent| evidence of(?: an?)?| evidence for(?: an?)?)?\s"
    r"(?:(?:statistically|clinically|such|major|important|relevant|detectable|marked|apparent|obvious|added|additional|"
    r"meaningful|measurable|overall|substantial|further|significant|treatment|group|between-group|main|interaction|"
    r"beneficial|protective|and|or)[\s-]){0,4}"
    r"(?:significan\w+|differen\w+|effects?|changes?|improvements?|benefits?|associations?|increases?|decreases?|"
    r"reductions?|impact|influence|superiority|advantage|variations?|gains?|correlations?|interactions?)\b"
    r"|(?:\b(?:not?|never|neither|cannot|nor)|n't)\s(?:[\w-]{1,30}\s){0,4}?(?:significan\w+|statistically|differ(?:ed|s|ent)?|"
    r"affect(?:ed|s)?|influence[ds]?|alter(?:ed|s)?|change[ds]?|improve[ds]?|reduce[ds]?|increase[ds]?|decrease[ds]?|"
    r"associated|superior|effective|better|worse|higher|lower|greater|less|more|reach|modif\w+|impact|show|benefit)\b"
    r"|\b(?:similar(?:ly)?|comparable|comparably|equivalent|equal(?:ly)?|unchanged|unaffected|non-?significant\w*|"
    r"insignificant\w*|indistinguishable|non-?inferior\w*|identical|n\.?s\.?(?=[\s),;]|$))\b"
    r"|\b(?:the same|failed to|as effective as|as well as|little (?:or no )?(?:difference|effect)|without (?:any )?"
    r"(?:a )?(?:statistically )?(?:significant )?(?:differences?|changes?|effects?))\b",
    re.IGNORECASE,
)
_UP = re.compile(
    r"\b(?:increas\w*|higher|greater|more|longer|elevat\w*|rose|risen|rise|rises|raised?|larger|enhanc\w*|gain\w*|"
    r"prolong\w*|above|doubled|tripled|augment\w*|faster|exceed\w*|stronger|heavier|favou?red|highest|best|most|"
    r"boosted|accelerat\w*|delay\w*|upregulat\w*|worsen\w*|high)\b",
    re.IGNORECASE,
)
_DOWN = re.compile(
    r"\b(?:decreas\w*|lower\w*|less(?:er)?|fewer|low|eliminated|shorter|shorten\w*|declin\w*|smaller|reduc\w*|fell|fallen|"
    r"drop\w*|attenuat\w*|suppress\w*|diminish\w*|slower|below|weaker|inhibit\w*|prevent\w*|protect\w*|alleviat\w*|reliev\w*|"
    r"lowest|least|minimi[sz]\w*|blunted|impair\w*|halved|loss|lost|earlier|downregulat\w*|quicker|abolished|"
    r"rarer|deteriorat\w*)\b",
    re.IGNORECASE,
)
_BETTER = re.compile(
    r"\b(?:improv\w*|better|superior\w*|in favou?r|benefi\w*|ameliorat\w*|success\w*|more effective|"
    r"effective(?:ly|ness)?)\b",
    re.IGNORECASE,
)
_WORSE = re.compile(r"\b(?:worse|inferior|poorer|less effective)\b", re.IGNORECASE)
_UNWANTED = re.compile(
    r"\b(?:pain|mortality|deaths?|die[ds]?|symptoms?|fatigue|anxiety|depressi\w*|infections?|complications?|adverse|"
    r"side effects?|bleeding|blood loss|nausea|vomiting|recurren\w*|relapse\w*|swelling|itch\w*|disease|severity|risk|"
    r"incidence|duration|time to|length of stay|stay|toxicity|failure|fractures?|hypo\w+|stress|insomnia|disability|"
    r"cough|fever|inflammat\w*|lesions?|exacerbat\w*|hospitali[sz]\w*|weight|bmi|cholesterol|ldl|triglycerides?|"
    r"glucose|hba1c|blood pressure|stroke|malaria|pneumonia|diarrh\w*|crp|edema|oedema|drop-?outs?|discontinu\w*|"
    r"impairment|dys\w+|errors?|consumption|problems?|cancer|tumou?r|progression)\b",
    re.IGNORECASE,
)
"""Outcomes that are better if there is less of them."""
_AMOUNT_UP = re.compile(r"(?:greater|larger|more|higher|bigger|stronger|faster|further|marked\w*)$", re.IGNORECASE)
_HELPS = re.compile(r"(?:more )?(?:effective|success|benefi)", re.IGNORECASE)
_AMOUNT_DOWN = re.compile(r"(?:less|smaller|lower|slower|weaker)$", re.IGNORECASE)
_CHANGE = re.compile(
    r"(?:increas|decreas|reduc|declin|drop|loss|gain|rise|improv|impair|prevent|inhibit|suppress|deteriorat|effective|"
    r"benefi|reliev|success)",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"(?:(?:with |there (?:was|is) )?no statistical|(?:this|these|it|they|the (?:results?|trends?))?\b[^.;]{0,40}?"
    r"\bnot?\b(?: \w+){0,4}? (?:significan|statistical)|\W*\(?p ?[=<>])",
    re.IGNORECASE,
)
"""A remark about the clause before it, such as `this difference was not significant`."""
_P_VALUE = re.compile(r"\bp(?:[ -]?values?)? ?(?:=|<|>|≤|≥|of) ?=? ?(0?\.\d{1,9}|1\.0{1,9})", re.IGNORECASE)
_P_SIGN = re.compile(r"[<>≤≥=]")
_RATIO = re.compile(
    r"\b(?:ors?|rrs?|hrs?|aors?|ahrs?|irrs?|(?:odds|risk|hazards?|rate) ratios?|relative risk)\b[^.\d]{0,24}"
    r"(\d{1,4}\.\d{1,4})[^\d]{0,40}(?:9\d ?%[^\d]{0,26})?(\d{1,4}\.\d{1,4}) ?(?:-|–|to|,|;) ?(\d{1,4}\.\d{1,4})",
    re.IGNORECASE,
)
_INTERVAL = re.compile(
    r"\b(?:ci|confidence intervals?)\b[^\d-]{0,12}(-?\d{1,4}(?:\.\d{1,4})?) ?%? ?(?:to|,|;|and|-) ?"
    r"(-?\d{1,4}(?:\.\d{1,4})?)",
    re.IGNORECASE,
)
_RATIO_ALONE = re.compile(
    r"\b(?:OR|RR|HR|aOR|aHR|IRR|(?i:(?:odds|risk|hazards?|rate) ratios?|relative risk))\b[^.\d]{0,24}(\d{1,3}\.\d{1,4})"
)
_RATES = re.compile(
    r"(?<![\d./])(\d{1,3}(?:\.\d{1,3})?) ?(?:%|percent|per cent)[^.;\d]{0,80}?\b(?:vs|versus|and|"
    r"compared (?:with|to)|against)\b"
    r"\.?[^.;\d]{0,60}(\d{1,3}(?:\.\d{1,3})?) ?(?:%|percent|per cent)",
    re.IGNORECASE,
)
_SAME_RATIO = 0.25
"""The logarithm of a ratio of rates may differ by this from that of the odds or hazard ratio."""
_PAIR = re.compile(
    r"(?<![\d./])(\d{1,7}(?:\.\d{1,7})?)(?![\d/])[^.;\d]{0,80}?\b(?:vs|versus|and|compared (?:with|to)|against)\b\.?"
    r"[^.;\d]{0,60}(\d{1,7}(?:\.\d{1,7})?)(?![\d/])",
    re.IGNORECASE,
)
"""The figures of two groups: `77.4% (26.3) in the intervention group and 69.0% in standard care`."""
_ASIDE = re.compile(r"\([^()]{0,80}\)|± ?\d{1,7}(?:\.\d{1,7})?")
_THAN = re.compile(
    r"\b(?:than|compared (?:with|to)|as compared (?:with|to)|in comparison (?:with|to)|versus|vs\.?|relative to|over|"
    r"compared)\b",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"\b(?:control|placebo|sham|usual care|standard|conventional|baseline)\w*", re.IGNORECASE)
_NO_COMPARISON = re.compile(
    r"(?:more|less|greater|fewer|lower|higher) than(?: or equal to)? (?:[\d.<>]|normal)", re.IGNORECASE
)
"""A bound, not a direction: `more than 20 %`."""
_MEASURE = re.compile(r"\((?:absolute |relative )?(?:risk|rate)(?: |-)(?:reductions?|increases?)\b", re.IGNORECASE)
"""A measure within parentheses, whose sign and groups the sentence does not say."""
_SIGNIFICANTLY = re.compile(r"\b(?:significan\w+|statistically)\b", re.IGNORECASE)
_WITHHOLDS = re.compile(
    r"\b(?:defer(?:ring|red|ral of)?|delay(?:ing|ed)?|postpon(?:ing|ed|ement of)|withh(?:olding|eld)|"
    r"withdraw(?:ing|n|al of)|discontinu(?:ing|ed|ation of)|stopping|stopped|omitt(?:ing|ed)|omission of|"
    r"avoid(?:ing|ance of)|forgoing|skipping|cessation of)\b",
    re.IGNORECASE,
)
"""Words by which an intervention was not given, or later: its effect is the opposite of what is said."""
_PASSIVE = re.compile(r"\b(?:was|were|is|are|been|being)\s+$", re.IGNORECASE)
_COMPOUNDS = frozenset({"low", "lower", "high", "higher", "reduced", "increased"})
"""First words of compounds that name an intervention and give no direction, such as `high-dose`."""
_OBJECT_WORDS = 4
"""Words after one of these in which the intervention is named (`deferring the use of radiotherapy`)."""
_DirectionWord: TypeAlias = tuple[int, int, int, str]
"""Start, end, sign and text of a word that gives a direction."""
_AIM = re.compile(
    r"\b(?:aim(?:s|ed)|(?:aim|objectives?|purpose|goal) (?:of|was|is|were)|hypothesi[sz]ed|with the hypothesis|"
    r"whether(?! or not)|(?:sought|designed|conducted|undertaken|carried out) to|"
    r"(?:remains?|is|are) (?:still )?(?:uncertain|unclear|unknown|controversial|unanswered)|"
    r"(?:has|have) not been (?:\w+ )?(?:studied|investigated|evaluated|examined|established|compared))\b"
    r"|^\W{0,9}to (?:determine|assess|evaluate|examine|investigate|compare|test|study|explore|find out)\b",
    re.IGNORECASE,
)
"""Words of a clause about what a study asks, and not what it found."""


def find_direction(text: str, comparison: Comparison) -> Direction:
    """Return which way the outcome of the comparison went in a text, `none` if the rules cannot read it.

    The clause that shares most words with the outcome decides. If it has no direction, the others follow in order.
    Clauses about the aim of a study have none.
    """
    clean = _normalise(text)
    clauses = [clause for clause in split_clauses(clean) if _WORD.search(clause.lower()) and not _AIM.search(clause)]
    if not clauses:
        return "none"
    outcome_stems = list_stems(comparison.outcome)
    ranked = sorted(clauses, key=lambda clause: -len(outcome_stems & list_stems(clause)))
    for clause in ranked:
        direction = _read_clause(clause, comparison)
        if direction != "none":
            return direction
    return _read_figures(clean, comparison)


def find_clause_direction(text: str, comparison: Comparison) -> Direction:
    """Return which way the outcome went in the part of a sentence that names it, by the rules.

    Parts with a common subject are told apart too: `halved stroke, and did not cause bleeding`.
    """
    parts = [part for clause in split_clauses(_normalise(text)) for part in _COMMON_SUBJECT.split(clause)]
    outcome = list_stems(comparison.outcome)
    return find_direction(max(parts, key=lambda part: len(outcome & list_stems(part))), comparison)


def denies_effect(text: str) -> bool:
    """Return whether a text states that there is no difference, effect or benefit."""
    return _NO_DIFFERENCE.search(_normalise(text)) is not None


def states_aim(text: str) -> bool:
    """Return whether a text states what a study asks, and not what it found."""
    return _AIM.search(_normalise(text)) is not None


def is_unwanted(outcome: str) -> bool:
    """Return whether less of an outcome is better, as of pain."""
    return _UNWANTED.search(outcome) is not None and _BETTER.search(outcome) is None


def list_stems(text: str, without: Collection[str] = ()) -> frozenset[str]:
    """Return the first letters of the content words of a text, in lower case."""
    stems = {word[:STEM_CHARACTERS] for word in _WORD.findall(text.lower()) if word not in _FILLERS and len(word) > 1}
    return frozenset(stems).difference(without)


def _normalise(text: str) -> str:
    """Return the text with single blanks and line breaks, and plain signs in its numbers."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines)).replace("·", ".").replace("−", "-")


def split_clauses(text: str) -> Iterator[str]:
    """Yield the clauses of a text. A part without a verb, such as a p-value, stays with the clause before."""
    start = 0
    for match in _CLAUSE_END.finditer(text):
        if match.start() > start and not _REMARK.match(text, match.end()):
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _read_clause(clause: str, comparison: Comparison) -> Direction:
    if _is_insignificant(clause):
        return "no-difference"
    sign = _read_words(clause, comparison)
    if sign == 0:
        return "none"
    return "increased" if sign > 0 else "decreased"


def _is_insignificant(clause: str) -> bool:
    """Return whether words, the p-values or the interval of a ratio or a difference show no difference."""
    denial = _NO_DIFFERENCE.search(clause)
    values = list_p_values(clause)
    if denial is not None and not (values and max(values) < SIGNIFICANT_P and _is_weak(denial[0])):
        return True
    if values:
        return min(values) >= SIGNIFICANT_P
    if ratio := _RATIO.search(clause):
        return float(ratio[2]) <= 1 <= float(ratio[3])
    interval = _INTERVAL.search(clause)
    return interval is not None and float(interval[1]) < 0 < float(interval[2])


def _is_weak(denial: str) -> bool:
    """Return whether the words say sameness in passing only (`similarly`, `as well as`)."""
    return denial.lower() in {"similarly", "as well as", "the same", "similar", "equal", "equally"}


def list_p_values(text: str) -> list[float]:
    """Return the p-values of a text: 0.05 for `p > 0.05`, a little less for `p < 0.05`."""
    values: list[float] = []
    for match in _P_VALUE.finditer(_normalise(text)):
        sign = _P_SIGN.search(match[0])
        values.append(float(match[1]) - (1e-9 if sign is not None and sign[0] in "<≤" else 0))
    return values


def _read_words(clause: str, comparison: Comparison) -> int:
    """Return 1 for an increase under the intervention, -1 for a decrease, 0 without a direction."""
    outcome = _normalise(comparison.outcome).lower()
    names_of_outcome = frozenset(word[:STEM_CHARACTERS] for word in _WORD.findall(outcome))
    unwanted = is_unwanted(outcome)
    places_of_names = _find_names(clause, comparison)
    measures = [match.span() for match in _MEASURE.finditer(clause)]
    words: list[_DirectionWord] = []
    for pattern, sign in ((_UP, 1), (_DOWN, -1), (_BETTER, -1 if unwanted else 1), (_WORSE, 1 if unwanted else -1)):
        for match in pattern.finditer(clause):
            is_name = match[0].lower()[:STEM_CHARACTERS] in names_of_outcome or match.start() in places_of_names
            is_measure = any(start < match.start() < end for start, end in measures)
            if not is_name and not is_measure and not _NO_COMPARISON.match(clause, match.start()):
                words.append((match.start(), match.end(), sign, match[0]))
    if not words:
        return 0
    words.sort()
    index = _choose_word(clause, words)
    start, end, sign, word = words[index]
    following = words[index + 1] if index + 1 < len(words) else None
    if following is not None and following[0] - end <= 24 and _CHANGE.match(following[3]):
        # `greater reduction` and `effective in reducing` are reductions, `smaller reduction` is less of one.
        if _AMOUNT_UP.match(word) or _HELPS.match(word):
            start, end, sign, word = following
        elif _AMOUNT_DOWN.match(word):
            start, end, sign = following[0], following[1], -following[2]
    if _is_withheld(clause, start, end, comparison):
        sign = -sign
    return -sign if _is_about_comparator(clause, start, end, comparison) else sign


def _find_names(clause: str, comparison: Comparison) -> frozenset[int]:
    """Return the characters of words that name an intervention, such as `low` in `low-dose aspirin`, or withhold it."""
    words = _WORD.findall(f"{comparison.intervention} {comparison.comparator}".lower())
    names = frozenset(word for word in words if not word[0].isdigit())
    tokens = list(_WORD.finditer(clause.lower()))
    places: set[int] = set()
    for index, token in enumerate(tokens):
        neighbours = (*tokens[max(0, index - 1) : index], *tokens[index + 1 : index + 2])
        is_compound = "-" in token[0] and token[0].partition("-")[0] in _COMPOUNDS
        in_name = token[0] in names and any(neighbour[0] in names - _FILLERS for neighbour in neighbours)
        if is_compound or in_name:
            places.update(range(token.start(), token.end()))
    for match in _list_withheld(clause, comparison):
        places.update(range(match.start(), match.end()))
    return frozenset(places)


def _list_withheld(clause: str, comparison: Comparison) -> Iterator[re.Match[str]]:
    """Yield the words of a clause for an intervention not given, or given later."""
    intervention = _distinct_words(comparison.intervention, comparison.comparator)
    for match in _WITHHOLDS.finditer(clause):
        if match[0].lower()[:STEM_CHARACTERS] in intervention:
            continue
        # What follows `than` is the other side: `lower with deferred than with early X`.
        object_ = _THAN.split(clause[match.end() :], maxsplit=1)[0]
        following = _WORD.findall(object_.lower())[:_OBJECT_WORDS]
        preceding = _WORD.findall(clause[: match.start()].lower())[-_OBJECT_WORDS:]
        is_passive = match[0].lower().endswith(("ed", "held", "drawn")) and _PASSIVE.search(clause, 0, match.start())
        stems = frozenset(word[:STEM_CHARACTERS] for word in (preceding if is_passive else following))
        if stems & intervention:
            yield match


def _is_withheld(clause: str, start: int, end: int, comparison: Comparison) -> bool:
    """Return whether the direction at this place is that of not giving the intervention, or of giving it later.

    It is not if only the other side of the comparison went without (`better with X than with deferred X`).
    """
    than, fronted = _THAN.search(clause, end), _THAN.search(clause, 0, start)
    for match in _list_withheld(clause, comparison):
        after = than is not None and match.start() > than.start()
        comma = -1 if fronted is None else clause.find(",", fronted.end())
        before = fronted is not None and fronted.start() < match.start() < comma
        if not after and not before:
            return True
    return False


def _choose_word(clause: str, words: Sequence[_DirectionWord]) -> int:
    """Return the index of the first word called significant, or of the first one."""
    for index, (start, _, _, _) in enumerate(words):
        if _SIGNIFICANTLY.search(clause[max(0, start - 30) : start]):
            return index
    return 0


def _is_about_comparator(clause: str, start: int, end: int, comparison: Comparison) -> bool:
    """Return whether the direction at this place is that of the comparator (`higher with placebo than with X`)."""
    intervention = _distinct_words(comparison.intervention, comparison.comparator)
    comparator = _distinct_words(comparison.comparator, comparison.intervention)
    than = _THAN.search(clause, end)
    if than is not None:
        before, after = clause[: than.start()], clause[than.end() :]
        return _balance(before, intervention, comparator) < 0 or (
            _balance(after, intervention, comparator) > 0 and _balance(before, intervention, comparator) <= 0
        )
    fronted = _THAN.search(clause, 0, start)
    rest = clause if fronted is None else clause[fronted.end() :].partition(",")[2]
    return _balance(rest, intervention, comparator) < 0


def _balance(text: str, intervention: frozenset[str], comparator: frozenset[str]) -> int:
    """Return how many more words of the intervention than of the comparator a text has."""
    stems = frozenset(word[:STEM_CHARACTERS] for word in _WORD.findall(text.lower()))
    balance = len(stems & intervention) - len(stems & comparator)
    if balance == 0 and not stems & intervention and comparator and _CONTROL.search(text):
        return -1 if not any(_CONTROL.match(stem) for stem in intervention) else 0
    return balance


def _distinct_words(text: str, other: str) -> frozenset[str]:
    """Return the first letters of the words that one side has and the other has not."""
    ours = frozenset(word[:STEM_CHARACTERS] for word in _WORD.findall(text.lower()))
    others = frozenset(word[:STEM_CHARACTERS] for word in _WORD.findall(other.lower()))
    return ours - others - frozenset(word[:STEM_CHARACTERS] for word in _FILLERS)


def _read_figures(text: str, comparison: Comparison) -> Direction:
    """Return the direction of a ratio with its interval, or of the figures of two groups that differ significantly."""
    ratio = _RATIO.search(text)
    if ratio is not None:
        value, low, high = (float(ratio[group]) for group in (1, 2, 3))
        if low <= 1 <= high:
            return "no-difference"
        return "increased" if value > 1 else "decreased"
    values = list_p_values(text)
    sign = compare_figures(text, comparison)
    if not sign or not values or min(values) >= SIGNIFICANT_P:
        return "none"
    return "increased" if sign > 0 else "decreased"


def compare_figures(text: str, comparison: Comparison) -> int:
    """Return 1 if the figure of the intervention is higher than that of the comparator, -1 if it is lower, or 0."""
    # Standard deviations and counts in parentheses follow a figure.
    pair = _PAIR.search(_ASIDE.sub(" ", text))
    if pair is None or float(pair[1]) == float(pair[2]):
        return 0
    intervention = _distinct_words(comparison.intervention, comparison.comparator)
    comparator = _distinct_words(comparison.comparator, comparison.intervention)
    first_sign = 1 if float(pair[1]) > float(pair[2]) else -1
    for word in _WORD.findall(text.lower()):
        stem = word[:STEM_CHARACTERS]
        if stem in intervention:
            return first_sign
        if stem in comparator or _CONTROL.match(word):
            # The first figure belongs to the group named first.
            return -first_sign
    return first_sign


def read_rates(text: str, comparison: Comparison) -> Direction:
    """Return the direction of two rates whose ratio the text states: `1.6 % with X and 4.3 % with Y, odds ratio 0.38`.

    It is `none` unless the rates have that ratio, each group is named behind its rate, and nothing says that the
    difference is not significant.
    """
    normal = _normalise(text)
    clean = _ASIDE.sub(" ", normal)
    rates, ratio = _RATES.search(clean), _RATIO_ALONE.search(normal)
    if rates is None or ratio is None or _is_insignificant(normal):
        return "none"
    first, second, value = float(rates[1]), float(rates[2]), float(ratio[1])
    if not (first and second and value) or abs(math.log(first / second) - math.log(value)) > _SAME_RATIO:
        return "none"
    intervention = _distinct_words(comparison.intervention, comparison.comparator)
    comparator = _distinct_words(comparison.comparator, comparison.intervention)
    between, behind = clean[rates.end(1) : rates.start(2)], clean[rates.end(2) :].split(",")[0]
    balance = _balance(between, intervention, comparator) - _balance(behind, intervention, comparator)
    if not balance or (value > 1) != (first > second):
        return "none"
    return "increased" if (first > second) == (balance > 0) else "decreased"
