"""Tell whether a sentence speaks of the asked outcome, or of what only contains its name.

    comparison = read_comparison("Does aspirin reduce stroke?")
    is_outcome_turned("Aspirin increased stroke-free survival.", comparison)   # True: more of it is less stroke

The direction of such a sentence is not that of the asked outcome.
"""

from __future__ import annotations

import re

from epicrisis.reading.comparisons import Comparison
from epicrisis.reading.direction_rules import STEM_CHARACTERS, is_unwanted, list_stems

_ENDS = (
    r"free(?:dom)?|relief|remissions?|resolution|clearance|cessation|recovery|healing|closure|loss|prevention|"
    r"protection|avoidance|absence|resistance|survival|suppression|eradication|elimination|regression|shrinkage|"
    r"alleviation|normali[sz]ation|abstinence|disappearance|cures?|reversal|prophylaxis|thresholds?|tolerance|"
    r"control(?! (?:groups?|arms?|subjects|patients|participants|conditions?|diet|period|\d))"
)
"""Words that make the opposite of an outcome, behind it (`seizure freedom`) or before (`freedom from seizures`)."""
_END = re.compile(rf"\b(?:{_ENDS}|without)\b", re.IGNORECASE)
_AFTER = (
    rf"(?:[\s-]|- (?:and|or) [\w-]+-)({_ENDS}|responders?|response rates?|antibod(?:y|ies)|"
    r"(?:(?:was|were|is|are|had|has|have) )?(?:\w+ly )?(?:resolved|healed|cleared|ceased|remitted|disappeared|"
    r"controlled|normali[sz]ed))\b"
)
_BEFORE = (
    rf"\b((?:{_ENDS}|protective effects?|efficacy|effectiveness|immunity|antibod(?:y|ies)|recover(?:ed|ing|s)?) "
    r"(?:of|from|to|for|against|without)|without|(?:with|of|having) no|quit(?:ting)?|stop(?:ped|ping)?|"
    r"(?:time|days|weeks|months|years|latency|interval)(?: from \w+)? (?:to|until|till|before)|"
    r"(?:delay(?:s|ed|ing)?|postpone[sd]?)(?: in| of)?)\s"
)
_GAP = (
    r"(?:(?!(?:effects?|differ\w*|increas\w*|decreas\w*|reduc\w*|chang\w*|improv\w*|more|less|greater|higher|lower|"
    r"fewer|excess|in|on|with|was|were|is|are|by|for|between|than|had|did|after|compared|\w+ing)\b)[\w-]+[\s-]){0,3}"
)
"""Words between `freedom from` and the outcome: none that begin another thought."""
_UNTIL = re.compile(
    r"\b(?:(?:time|days|weeks|months|years|latency|interval)(?: from \w+)? (?:to|until|till|before)\b|delay|postpone)",
    re.IGNORECASE,
)
_TIMED = re.compile(
    r"\b(?:times?|latency|duration|intervals?|delay\w*|onset|sooner|earlier|later|faster|quicker|slower|longer|shorter|"
    r"prolong\w*|shorten\w*|days?|hours?|h|min|minutes?|weeks?|months?|years?)\b",
    re.IGNORECASE,
)
_FREE = re.compile(r"\b(?:free|freedom|without|absence|no|non)\b", re.IGNORECASE)
_AUXILIARY = re.compile(r"^(?:(?:was|were|is|are|had|has|have) )?(?:\w+ly )?", re.IGNORECASE)
_LOST = "loss|lost|lose"
_ARTICLE = re.compile(r"^(?:an?|the) ", re.IGNORECASE)
_REDUCTION = r"(?:reductions?|decreases?|declines?|drops?)"
_MORE = r"\b(?:greater|larger|higher|bigger|more|increased)\b"
_LESS = r"\b(?:smaller|less|lower)\b"


def is_outcome_turned(sentence: str, comparison: Comparison) -> bool:
    """Return whether a sentence speaks of freedom or relief from the outcome, or of the time until it, unless asked.

    So does one on the outcome itself where the question asks for freedom from it. An increase is then a decrease of
    what is asked.
    """
    asked, stems = comparison.outcome, list_stems(comparison.outcome)
    if not stems:
        return False
    text = " ".join(sentence.split())
    for name in (comparison.intervention, comparison.comparator):
        if list_stems(name):
            # A weight-loss diet may reduce weight.
            text = re.sub(_match_name(name), "X", text, flags=re.IGNORECASE)
    names = _match_words(stems)
    for pattern in (rf"{names}{_AFTER}", rf"{_BEFORE}{_GAP}{names}", rf"\b(non)-?{names}"):
        for match in re.finditer(pattern, text, re.IGNORECASE):
            if not _names_end(match[1], asked):
                return True
    if _is_less_of_change(text, names, asked) or (_UNTIL.search(asked) and not _TIMED.search(text)):
        return True
    ends = [match[0] for match in _END.finditer(asked)]
    return bool(ends) and not any(_names_end(end, text) for end in ends)


def _names_end(end: str, text: str) -> bool:
    """Return whether a text has a word that turns an outcome as this one does."""
    if _UNTIL.match(end):
        return _TIMED.search(text) is not None
    if _FREE.search(end):
        return _FREE.search(text) is not None
    beginning = re.escape(_AUXILIARY.sub("", end)[:4]).lower()
    return re.search(rf"\b(?:{_LOST if beginning == 'loss' else beginning})", text, re.IGNORECASE) is not None


def _is_less_of_change(text: str, names: str, asked: str) -> bool:
    """Return whether the words of amount are those of a change: `the improvement in pain was greater`."""
    patterns = [
        rf"\b{_REDUCTION} (?:in|of) {_GAP}{names}[^.;]{{0,80}}{_LESS}",
        rf"{names} {_REDUCTION}\b[^.;]{{0,80}}{_MORE}",
        rf"{_MORE} {names} {_REDUCTION}\b",
    ]
    if is_unwanted(asked):
        patterns.append(rf"(?:\bimprovements? (?:in|of) {_GAP}{names}|{names} improvements?\b)[^.;]{{0,80}}{_MORE}")
        patterns.append(rf"{_MORE} {names} improvements?\b")
    is_asked = re.search(rf"\b(?:{_REDUCTION}|improvements?)\b", asked, re.IGNORECASE) is not None
    return not is_asked and any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


def _match_words(stems: frozenset[str]) -> str:
    """Return the pattern of a word with one of these beginnings. A shorter one is a whole word."""
    words = [re.escape(stem) + (r"[\w']*" if len(stem) == STEM_CHARACTERS else "") for stem in sorted(stems)]
    return rf"\b(?:{'|'.join(words)})\b"


def _match_name(name: str) -> str:
    """Return the pattern of a name without its article."""
    return r"\b" + r"\W{1,2}".join(re.findall(r"\w+", _ARTICLE.sub("", name))) + r"\b"
