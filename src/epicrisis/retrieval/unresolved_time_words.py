"""Words of time in a question that its time expressions do not account for.

Only the notes that a question is about are read, and only if all of its time words are understood.
`find_unresolved_word` receives the question with blanks for its understood expressions and returns the first word that
may mean another time. It prefers to return a harmless word than to miss one, because then the entire record is read.

    >>> leftover("was creatinine higher in ¶¶¶¶ than at baseline?")
    'than'
"""

from __future__ import annotations

import re

BLANK = "¶"
"""Replaces a character of an understood expression."""
GAP = "§"
"""Replaces a character that belongs to such an expression and mentions no time by itself."""

_ORDINAL = (
    r"first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|last|initial|earliest|latest|"
    r"penultimate|final|\d{1,3}(?:st|nd|rd|th)"
)
_PERIOD = r"minutes?|hours?|days?|nights?|weeks?|months?|years?|decades?|quarters?"
_MONTH = (
    r"january|february|march|april|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|jul|aug|"
    r"sept?|oct|nov|dec"
)
_BEFORE_MAY = r"in|since|until|till|by|from|during|of|before|after|early|late|mid|last|next|every|between|than"

_HARMLESS = re.compile(
    "|".join(
        rf"(?:{pattern})"
        for pattern in (
            # Names, kinds, degrees and parts of the body.
            rf"\b(?:{_ORDINAL})[ -](?:names?|lines?|degree|aid|hand|person|trimester|generation|choice|grade|"
            r"heart sounds?|cranial|intercostal|branch|opinion)\b",
            rf"\b(?:{_ORDINAL})(?:(?:,| and| or| to|, and) (?:the )?(?:{_ORDINAL})){{0,9}} "
            r"(?:left |right |upper |lower )?"
            r"(?:toes?|fingers?|digits?|ribs?|molars?|metatarsals?|metacarpals?|rays?|nerves?|ventricles?|vertebrae?)\b",
            r"\bpast (?:medical|surgical|family|social|psychiatric|obstetric\w*|ocular)\b",
            r"\b(?:year|date|place) of birth\b",
            r"\b\d+[ -](?:years?|months?|weeks?|days?)[ -]olds?\b|\b\d+ (?:years|months) of age\b",
            # How often a drug is taken.
            r"\b(?:once|twice|(?:one|two|three|four|five|\d+) times) (?:an?|per|each|every|in) "
            r"(?:day|week|month|hour)\b",
            r"\b(?:once|twice) (?:daily|weekly|monthly)\b|\bper (?:minute|hour|day|night|week|month)\b",
            r"\bevery (?:\w+ )?(?:hours?|days?|other day)\b",
            # The time that the question asks for.
            r"^when (?=(?:was|were|is|are|did|does|do|has|had)\b)",
            r"^(?:on (?:what|which) (?:days?|dates?)|at (?:what|which) (?:time|hour))\b",
            r"\band (?:when|on (?:what|which) (?:days?|dates?)) (?=(?:was|were|is|did)\b)",
            r"\b(?:led|leads?|leading|due|owing|contribut\w*|related|secondary|according|attribut\w+|happened|brought|"
            r"specific) to (?=(?:the |his |her |their )?¶)",
            r'"[^"¶]{0,500}"|“[^”¶]{0,500}”',
            r"\bthe following\b|\bin order to\b|\bprogress(?:ion)? notes?\b",
            r"\b(?:reason|cause|indication)s? (?:for|of) (?:the |his |her |their |this )?(?:hospital )?"
            r"(?:admission|hospitali[sz]ation|stay)\b(?= (?:in|on|during) ¶)",
        )
    )
)
_POINTS_ELSEWHERE = re.compile(
    "|".join(
        rf"(?:{pattern})"
        for pattern in (
            # Calendar and clock.
            r"\b(?:1[89]|2[0-2])\d\d\b"
            r"(?! ?(?:ml|cc|mg|mcg|µg|ug|g|kg|u|iu|units?|meq|mmol|steps|calories|kcal|l|mm|cm)\b)",
            r"'\d\d\b|’\d\d\b|\b\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}\b",
            r"(?<![\d/])(?:0?[1-9]|[12]\d|3[01])/(?:0?[1-9]|[12]\d|3[01])(?![\d/])",
            rf"\b(?:{_MONTH})\b",
            rf"\b(?:{_BEFORE_MAY}) may\b|\bmay (?:\d|of\b)|⟨\d+⟩",
            r"\b(?:spring|summer|autumn|winter)(?:time)?\b|\b(?:in|last|this|next|early|late) (?:the )?fall\b",
            r"\b(?:christmas|easter|thanksgiving|new year'?s?|halloween|holidays?)\b",
            r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\bweekends?\b",
            rf"\b(?:{_PERIOD}|today|tonight|yesterday|tomorrow|morning|afternoon|evening|noon|midnight|overnight)\b",
            r"\b\d{1,2}:\d\d\b|\b\d{1,2} ?[ap]\.?m\b|\bo'?clock\b|\b(?:century|millennium|semester|season|era|epoch)\b|"
            r"\b(?:\d\d)?\d0'?s\b|\b(?:twen|thir|for|fif|six|seven|eigh|nine)ties\b|\b(?:childhood|adolescence|youth|teens?|"
            r"retirement|lifetime|menopause|puberty)\b",
            # Places in an order.
            rf"\b(?:{_ORDINAL})\b|\b(?:firstly|secondly|lastly|finally|initially|originally|eventually|ultimately)\b",
            r"\b(?:previous|prior|past|next|subsequent|following|preceding|succeeding|former|latter|original|recent|"
            r"most recent|current|present day|ongoing|future|upcoming|index|repeat|serial|consecutive)(?:ly)?\b",
            r"\b(?:early|earlier|late|later|latest|lately|sooner|soon|newer|older|formerly|afterwards?|thereafter|"
            r"beforehand|hence|henceforth|meanwhile|meantime|presently|at present|nowadays|now|then|ago|once|again|"
            r"still|yet|already|anymore|any more|always|never|ever|so far|to date|onwards?|forward|back then)\b",
            # Relations, comparisons, exceptions.
            r"\b(?:before|after|since|until|till|til|between|throughout|during|amid|upon|while|whilst|when|whenever|"
            r"as soon as|by the time|within|pre|post|around|circa)\b",
            r"\b(?:pre|post|peri|intra|inter)-?(?:discharge|admission|hospital)\w*",
            r"\b(?:than|versus|vs|compar(?:e[ds]?|ing|isons?|able|ably)|relative to|differ(?:s|ed|ent|ently|ences?)?|"
            r"unlike|both|either|neither|respectively|same|baseline|over time|trend\w*|change[sd]? since)\b",
            r"\b(?:higher|lower|greater|larger|smaller|fewer|less|better|worse|longer|shorter|heavier|lighter|rather|"
            r"more (?:often|severe|frequent\w*|\w+ed))\b",
            r"\b(?:except\w*|exclud\w*|outside|besides|apart|aside|other than|instead|elsewhere|without|"
            r"not (?:in|on|at|during|from|of|for)|only|alone|other|another|others|remaining|rest of|additional)\b",
            # Events that continue beyond a time.
            r"\b(?:continu\w*|resum\w*|remain\w*|persist\w*|recur\w*|return\w*|resolv\w*|ongoing|"
            r"follow(?:ed|s|ing)|follow(?:[ -]?ups?\b(?! (?:was |were )?arranged)|\b(?![ -]?up))|"
            r"gone|healed|disappear\w*|grown?|grew|"
            r"shr[aiu]nk\w*|progressed|help(?:ed)?|worked|success\w*|re-?admi\w*|re-?hospitali\w*|outpatient|clinic|visits?|"
            r"appointments?|"
            r"long[ -]term|new(?:ly)?|no longer)\b",
            r"^(?:is|are) (?!there\b)",
            # Stays outside the expressions.
            r"\b(?:admissions|hospitali[sz]ations|stays|encounters|discharges|admission|hospitali[sz]ation|encounter|"
            r"stay|transfer(?:red)?)\b",
        )
    )
)
_STAY_COMPOUND = re.compile(
    r"\badmission (?:diagnos[ie]s|medications?|meds|weight|labs?|vitals?|notes?|ecg|ekg|exam\w*)\b|"
    r"\bdischarge (?:diagnos[ie]s|medications?|meds|weight|labs?|instructions?|disposition|condition|plan|summar\w+)\b"
)
_ASKS = r"(?:why|how|what|which|who|whom|where|was|were|is|are|did|does|do|had|has|with)"
_JOINED = re.compile(
    r"(?:\band|\bas|\bwith|\balso|\bthen|\bor|\bbut|\bnor|\bplus|&|/|\bto|\bthrough|\bnot|\babout|\bnear|[-–—]) ?"
    r"(?:in |on |at |during |of |from |for |the ){0,3}[¶§]"
)
_GOES_ON = re.compile(
    rf"[¶§],? (?:and|or|but|nor|plus|&|to|through|not|as well as|along with|together with|also|then) (?!{_ASKS}\b|§|¶)"
)
# `Was the drain placed in 2016 removed?`: the words after the expression are of another time.
_PREDICATE = re.compile(
    r"[¶§](?P<behind>[^?.;¶§]{0,120}?\b(?!attribut|ascrib|caus|document|record|measur|report|describ|not|call|nam|need)"
    r"(?:\w{2,}ed|done|given|taken|found|seen|made|put|begun|drawn)\b)"
)
_DONE = r"(?:\w{3,}ed|done|given|taken|found|seen|made|begun|drawn|put)"
# `What was done about the nodule found in 2016`: the time is that of the finding, not of the treatment.
_FINDING = re.compile(rf"\b(?!describ|document|record|report|noted|stat|mention|list|dat){_DONE} ?(?=[¶§])")
_MAIN = re.compile(
    rf"\b(?:was|were|is|are|been|be|ha[ds](?! the\b)|have(?! the\b)|being|get|got)"
    rf"(?: (?!(?:{_DONE}|had)\b)[\w'-]+){{0,5}} {_DONE} ?$|^(?:what|who|which(?: [\w-]+){{1,3}}) {_DONE} ?$"
)
# `Who took out the stitches of the second admission`, `Was the nodule from 2014 benign`: the outcome is of any time.
_TELLS = (
    r"show|say|said|state|report|describe|mention|reveal|read|list|name|contain|tell|find|note|conclude|give|measure|"
    r"look|suggest|demonstrate|confirm|document|record|include|recommend|indicate|come back"
)
_BECAME = re.compile(
    rf"\b(?:of|from) ?[¶§]+ (?!(?:{_TELLS}|{_ASKS}|and|or|but|in|on|at|by|per|according|that|there|the|her|his|she|he)"
    r"\b)[a-z]|\b(?:took|tak\w+|came|come|comes|coming|turn\w*|work\w*) out\b|\b(?:became|becomes?|came|come) of\b|"
    r"\bpending\b|\bawait\w*|\boutstanding\b|\bheal\w*"
)
_EDGE = re.compile(r"[¶§](?:[-–—/&+]|'\d)|(?:[/&+–—]|\w-)[¶§]|[¶§](?:, ?(?:and |or |& ?)?| and | or | ?& ?)\d\d\b")


def find_unresolved_word(text: str) -> str | None:
    """Return the first word of this text that may mean a time, or None.

    `text` is in small letters, with `BLANK` and `GAP` in place of the understood expressions.
    """
    rest = " ".join(_STAY_COMPOUND.sub(" ", _HARMLESS.sub(" ", text)).split())
    words = _POINTS_ELSEWHERE.search(rest)
    if words:
        return words[0].strip()
    for predicate in _PREDICATE.finditer(rest):
        if not re.search(rf"\b{_ASKS}\b", predicate["behind"]):
            return predicate["behind"].strip().split()[-1]
    for finding in _FINDING.finditer(rest):
        if not _MAIN.search(rest[max(0, finding.start() - 80) : finding.end()]):
            return finding[0].strip()
    became = _BECAME.search(rest)
    if became:
        return became[0].strip(f"{BLANK}{GAP} ")
    joint = _JOINED.search(rest) or _GOES_ON.search(rest) or _EDGE.search(rest)
    return joint[0].strip(f"{BLANK}{GAP} ,") or joint[0] if joint else None
