"""Tell whether a sentence speaks of the asked outcome and intervention, or of what only contains their names.

    comparison = read_comparison("Does aspirin reduce stroke?")
    is_outcome_turned("Aspirin increased stroke-free survival.", comparison)   # True: more of it is less stroke
    is_other_exposure("Omeprazole reduced stroke in aspirin users.", comparison)   # True

The direction of such a sentence is not that of the asked outcome under the asked intervention.
"""

from __future__ import annotations

import re

from epicrisis.reading.comparisons import Comparison
from epicrisis.reading.direction_rules import STEM_CHARACTERS, is_unwanted, list_stems, split_clauses

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
    r"fewer|excess|in|on|with|was|were|is|are|by|for|between|than|had|did|after|compared|\w+ing)\b)\w+[\s-]){0,4}"
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

_BEHIND = re.compile(
    r"(?:[\s-](?:therapy|treatment|use|drug|medication))?[\s-]("
    r"withdrawal|intoleran\w+|resistan\w+|refractor\w+|antagoni\w+|inhibitors?|inhibition|block(?:ers?|ade)|"
    r"(?:induced|associated|related)(?! (?:with|to)\b| (?:[\w-]+ )?(?:reductions?|decreases?|increases?|improvements?|"
    r"changes?|declines?|benefits?|effects?|enhancement|prevention|protection|suppression|differences?)\b)|"
    r"non-?(?:adheren|complian|persisten|us)\w+|underus\w+|discontinuation|cessation|interruption|omission|deficien\w+|"
    r"insufficien\w+|depletion|deprivation|restriction|reduction|avoidance|refusal|allerg\w+|hypersensitivity|"
    r"overdos\w+|poisoning|toxicity|failures?|misuse|abuse|dependence|substitutes?|free|na[iï]ve|sparing|taper\w*|"
    r"reversal|elimination|exclusion|abstinence|de-?escalation|"
    r"delays?(?= (?:\w+ly )?(?:\w+ed|was|were|is|are|led|had|has|of|by|beyond|did|does)\b|[,.;:)]|$))",
    re.IGNORECASE,
)
"""Words behind an intervention that make another exposure of it."""
_ADHERENCE = re.compile(r"[\s-](?:adherence|compliance|persistence|response)\b", re.IGNORECASE)
_POOR = re.compile(r"\b(?:poor|poorer|low|lower|bad|worse|inadequate|suboptimal|non) (?:[\w-]+ )?$", re.IGNORECASE)
_REACH = 120
"""Characters before a mention in which such words stand."""
_LEAD = r"(?:(?!(?:of|with|to|by|and|or|in|than|for|on)\b)[\w-]+ ){0,2}$"
"""Words between such a preposition and the intervention: `low-dose`."""
_AHEAD = re.compile(
    r"\b(despite|in addition to|added to|on top of|instead of|rather than|(?:adding|addition of) (?:\S+ ){1,6}?to|"
    r"switch\w* from|(?:refractory|resistant|resistance|unresponsive|naive) to|(?:intoleran\w+|allerg\w+) (?:of|to)|"
    r"(?:poor|poorer|low|lower|inadequate|non-?)[ ]?(?:adherence|compliance) (?:to|with)|nonadherence to|failed|"
    r"(?:antagonists?|inhibitors?|inhibition|failure|overdose|interruption|lack|absence) of|(?<!or )(?<!and )without|"
    rf"not (?:receiving|taking|using|given|on)|with no) {_LEAD}",
    re.IGNORECASE,
)
_LOW = re.compile(r"\b(low|lower|reduced|insufficient)[\s-](?:serum |plasma |blood |dietary )?$", re.IGNORECASE)
"""What stands before an intervention that is not what a sentence speaks of."""
_PEOPLE = (
    r"(?:patients?|users?|recipients?|people|persons?|individuals?|subjects?|participants?|adults?|women|men|children|"
    r"infants?|those|volunteers)"
)
_CONTEXT = re.compile(
    rf"\b(?:after|following|before|prior to|(?:due|owing) to|caused by|from|(?:combined|combination) with|"
    r"(?:compared|comparison) (?:with|to)|relative to|versus|vs\.?|over|plus|"
    rf"than(?: (?:with|in|after|for|by|those of|that of|that with))?|"
    rf"{_PEOPLE} (?:already |currently |also )?(?:on|with|taking|receiving|treated with|given|using|prescribed|"
    rf"who \w+(?: \w+)?)) {_LEAD}",
    re.IGNORECASE,
)
_IN = re.compile(rf"\b(?:in|among|of|for|to) {_LEAD}", re.IGNORECASE)
_POPULATION = re.compile(rf"[\s-](?:treated |taking )?{_PEOPLE}\b|[\s-]treated\b", re.IGNORECASE)
"""Where an intervention is that of the population or the other side, if a sentence speaks of another treatment."""
_ALONE = re.compile(r"[\s-](?:(?:therapy|treatment) )?(?:alone|only|monotherapy)\b", re.IGNORECASE)
_FRONTED = re.compile(
    r"^(?:(?:when|as) )?(?:compared|relative|versus|in|among|after|following|despite|with|at|during|over|for|on|"
    r"within|by) [^,]{1,120}, ",
    re.IGNORECASE,
)
_ACTS = re.compile(
    r"(?<!\bbe )(?<!\bbeen )\b(?:reduc(?:ed|es?)|increased|decreased|(?:in|de)creases (?=\w+ \w)|improv(?:ed|es?)|"
    r"lower(?:ed|s)|prevent(?:ed|s)?|attenuat(?:ed|es?)|suppress(?:ed|es)?|inhibit(?:ed|s)?|rais(?:ed|es?)|prolong(?:ed|s)?|"
    r"shorten(?:ed|s)?|accelerat(?:ed|es?)|delay(?:ed|s)|diminish(?:ed|es)?|enhanc(?:ed|es?)|protect(?:ed|s)?|"
    r"alleviat(?:ed|es?)|reliev(?:ed|es?)|ameliorat(?:ed|es?)|halv(?:ed|es?)|doubl(?:ed|es?)|worsen(?:ed|s)?|had|has|have|"
    r"show(?:ed|s)|led|leads|result(?:ed|s) in|caus(?:ed|es?)|produc(?:ed|es?)|provid(?:ed|es?)|did|does|gave|"
    r"(?:was|were|is|are) (?:\w+ly )?(?:associated|superior|inferior|better|more|less|effective))\b",
    re.IGNORECASE,
)
_SUBJECT_END = re.compile(
    r"\b(?:after|following|before|prior|combined|given|in|added|on top|plus|compared|versus|vs|than|among|for|despite|"
    r"to|when|over|alone|at|during|who|which|that|from|was|were)\b|[(,;]",
    re.IGNORECASE,
)
_AGENT = re.compile(
    r"\b(?:by|with|under) (?!(?:\d|half|a |an |about|approximately|up |more |less|mean|average|time|age|respect|"
    r"regard))"
    r"((?:(?!(?:in|among|of|for|than|and|compared|versus|vs|on|to|at|with|by|after)\b)[\w-]+ ?){1,3})",
    re.IGNORECASE,
)
_NO_TREATMENT = re.compile(
    rf"\b(?:{_PEOPLE}|we|they|it|this|these|there|both|all|each|many|most|some|no|not|non\w*|never|other|others|which|"
    r"our|its|their|revealed|indicated|demonstrated|suggest\w*|observed|found|showed|stud(?:y|ies)|trials?|"
    r"analys[ei]s|results?|data|findings?|evidence|reviews?|meta-analys[ei]s|authors?|investigators?|interventions?|treatments?|treated|use|drugs?|medications?|regimens?|combinations?|doses?|"
    r"programmes?|programs?|models?|tests?|comparisons?|groups?|arms?|cohorts?|one|two|three|multivariate|regression|"
    r"controls?|placebo|sham|usual|standard|conventional|baseline|untreated|vehicle|saline|dummy|wait\w*|observation|"
    r"rats?|mice|animals?|boys|girls|mothers?|elderly|older|younger|\w+ly)\b",
    re.IGNORECASE,
)
"""Words that name no other treatment."""

_FIGURE = (
    r"(?=(?:[\w-]{1,20} ){0,3}?(?:\d|half\b|an? (?:half|third|quarter|fifth|tenth)\b|(?:one|two|three|four|five) ))"
)
_FROM = re.compile(rf"\bfrom {_FIGURE}", re.IGNORECASE)
_TO = re.compile(rf",? (?:down |up )?to {_FIGURE}", re.IGNORECASE)
"""A change: `from 31% with A to 20% with B`, `to 20% with B from 31% with A`."""
_DOWN = re.compile(r", (?:(?:down|up) )?$", re.IGNORECASE)
_BREAK = re.compile(r"[,;:]")
_FIGURES_ASIDE = re.compile(r" ?\([^()\d]{0,20}\d[^()]{0,80}\)")
_NOT_GIVEN = re.compile(r"\b(?:without|before|prior to|no|not|non|never|pre)\b", re.IGNORECASE)


def speaks_of_another(sentence: str, comparison: Comparison) -> bool:
    """Return whether a sentence speaks of another exposure, or of freedom from the outcome."""
    return is_other_exposure(sentence, comparison) or is_outcome_turned(sentence, comparison)


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


def is_other_exposure(sentence: str, comparison: Comparison) -> bool:
    """Return whether every mention of the intervention is of another exposure: its lack, its users, the other side."""
    intervention, comparator = list_stems(comparison.intervention), list_stems(comparison.comparator)
    stems = intervention - comparator or intervention
    if not stems:
        return False
    if _changes_from(sentence, stems):
        return True
    words = _match_words(stems)
    mention = re.compile(rf"{_match_name(comparison.intervention)}|{words}(?:[\s-]{words})*", re.IGNORECASE)
    others: list[bool] = []
    for clause in split_clauses(" ".join(sentence.split())):
        names_comparator = bool((comparator - intervention) & list_stems(clause))
        for match in mention.finditer(clause):
            before, after = clause[max(0, match.start() - _REACH) : match.start()], clause[match.end() :]
            is_whole = list_stems(match[0]) == intervention
            if is_whole and not names_comparator and _CONTEXT.search(before) and _ALONE.match(after):
                # Both sides had it.
                return True
            is_other = _is_another(before, after, comparison) or (
                _is_context(before, after) and _has_other_treatment(clause, match.start(), comparison)
            )
            others.append(is_other)
    return bool(others) and all(others)


def _changes_from(sentence: str, stems: frozenset[str]) -> bool:
    """Return whether a change is told that begins with the intervention: `from 31% with it to 20% with another`."""
    for clause in split_clauses(" ".join(sentence.split())):
        text = _FIGURES_ASIDE.sub("", clause)
        start = _FROM.search(text)
        if start is None:
            continue
        first, *rest = _TO.split(text[start.end() :], maxsplit=1)
        last = rest[0] if rest else _BREAK.split(_DOWN.sub("", text[: start.start()]))[-1]
        is_change = not _BREAK.search(first) if rest else any(map(str.isdigit, last))
        named = stems & list_stems(first)
        if is_change and named and not _NOT_GIVEN.search(first) and len(stems & list_stems(last)) <= len(named):
            return True
    return False


def _is_another(before: str, after: str, comparison: Comparison) -> bool:
    """Return whether the words around a mention make another exposure of it, such as its withdrawal, unless asked."""
    for match in (_BEHIND.match(after), _AHEAD.search(before), _LOW.search(before)):
        if match is not None:
            beginning = re.escape(match[1][:STEM_CHARACTERS])
            if re.search(rf"\b{beginning}", comparison.intervention, re.IGNORECASE) is None:
                return True
    return _ADHERENCE.match(after) is not None and _POOR.search(before) is not None


def _is_context(before: str, after: str) -> bool:
    """Return whether a mention may be that of the population, of an earlier treatment or of the other side."""
    is_population = _IN.search(before) is not None and _POPULATION.match(after) is not None
    return is_population or _CONTEXT.search(before) is not None


def _has_other_treatment(clause: str, place: int, comparison: Comparison) -> bool:
    """Return whether a clause says that another treatment changes the outcome, as its subject or agent."""
    outcome = list_stems(comparison.outcome)
    ours = outcome | list_stems(comparison.intervention) | list_stems(comparison.comparator)
    fronted = _FRONTED.match(clause)
    rest = clause[fronted.end() :] if fronted else clause
    verb = _ACTS.search(rest)
    if verb is not None and outcome & list_stems(rest[verb.end() :]):
        subject = _SUBJECT_END.split(rest[: verb.start()], maxsplit=1)[0]
        if list_stems(_NO_TREATMENT.sub(" ", subject)) and not list_stems(subject) & ours:
            return True
    for match in _AGENT.finditer(clause[:place]):
        names = list_stems(match[1])
        if names and not names & ours and not _NO_TREATMENT.search(match[1]):
            return True
    return False


def _match_words(stems: frozenset[str]) -> str:
    """Return the pattern of a word with one of these beginnings. A shorter one is a whole word."""
    words = [re.escape(stem) + (r"\w*(?:'\w*)?" if len(stem) == STEM_CHARACTERS else "") for stem in sorted(stems)]
    return rf"\b(?:{'|'.join(words)})\b"


def _match_name(name: str) -> str:
    """Return the pattern of a name without its article."""
    return r"\b" + r"\W{1,2}".join(re.findall(r"\w+", _ARTICLE.sub("", name))) + r"\b"
