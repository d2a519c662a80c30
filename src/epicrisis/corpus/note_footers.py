"""Whole lines that systems write into notes: signatures, pages, rules, dictation. Knows no note.

A line counts only where all of it is such: behind "electronically signed by" names, titles, dates and times alone. A
line that goes on with anything else, "ADDENDUM: HER2 positive", stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_LONGEST = 300
"""Characters of such a line. A longer one is none, and would take long to tell."""
_MARK = r"(?:_{2,30}(?!_)|\[\*\*[^\]\n]{0,60}\*\*\])"
"""Of de-identification: a name or a date stood there."""
_TITLE = (
    r"(?:(?:Dr|Prof|Mr|Mrs|Ms|Jr|Sr|Ph\.?D|Pharm\.?D|PA-C)\b\.?|(?:[A-Z]\.){1,4}|(?:MD|DO|RN|NP|PA|MBBS|FACS|FRCR|III?)\b"
    r"|(?i:attending|resident|fellow|physician|radiologist|pathologist|surgeon|nurse practitioner)\b)"
)
_NO_NAME = (
    r"(?!(?i:addend\w*|amend\w*|correct\w*|note|please|call\w*|positive|negative|normal|abnormal|critical|acute|chronic"
    r"|severe|allerg\w*|no|not|see|plan|final|impression|findings?|diagnos[ei]s|result\w*|potassium|left|right"
    r"|\w+(?:oma|itis|emia|osis|ectomy|opathy|ism|tion|uria|orrhage|ture))\b)"
)
_NAME = rf"(?:(?:(?:van|von|de|der|la|di|al|el) ){{0,2}}{_NO_NAME}[A-ZÀ-ÖØ-Þ](?:[^\W\d_]|['’-])*(?![\w:])|{_MARK})"
_PERSON = rf"(?:{_TITLE}[ ,]{{0,3}}){{0,4}}(?:{_NAME}(?:,? (?:{_TITLE}|{_NAME})){{0,3}})?(?:[ ,]{{1,3}}{_TITLE}){{0,4}}"
_MONTH = r"(?i:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]{0,6}"
_DATE = (
    rf"(?:\d{{4}}-\d\d?-\d\d?|\d\d?(?:/\d\d?/|\.\d\d?\.|-\d\d?-)\d{{2,4}}"
    rf"|\d\d?[ -]{_MONTH}[ -]\d{{4}}|{_MONTH} \d\d?,? \d{{4}}|{_MARK})"
)
_TIME = r"(?:T?\d\d?:\d\d(?::\d\d)?(?: ?[AaPp]\.?[Mm]\b\.?)?(?: (?:[ECMP][SD]T|UTC|GMT)\b)?)"
_WHEN = rf"(?:[ ,]{{0,3}}(?:(?i:on|at):? )?(?:{_DATE}|{_TIME})){{0,3}}"
_BY = rf"{_PERSON}(?: and {_PERSON})?{_WHEN}"

_TOLD = (
    r"(?:dictated|created|generated|produced|prepared|transcribed|completed|typed|written|made|partially|partly|part|in"
    r"|or|entirely|fully|using|utilizing|with|by|through|via|from|the|a|an|aid|assistance|help|use|of|dragon|medical"
    r"|computer|computerized|electronic|electronically|automated|software|system|technology|program|dictation"
    r"|transcription|and|as|such|is|it|there|may|might|can|could|will|be|therefore|so|contain|contains|include|includes"
    r"|have|has|some|subject|to|inadvertent|unintended|unintentional|typographical|transcriptional|grammatical|grammar"
    r"|spelling|sound-alike|word|words|wording|recognition|voice|speech|substitutions?|errors?|mistakes?|despite"
    r"|careful|proofreading|review|result|due|that|were|been|for)"
)
FOOTERS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(rf"^[ \t*]{{0,20}}(?=.{{1,{_LONGEST}}}$)(?:{pattern})[ \t*]{{0,20}}$", re.MULTILINE)
    for name, pattern in {
        "signature": r"(?i:(?:electronically|digitally|e-)\s?signed|signed electronically|authenticated(?= by))"
        rf"{_WHEN}(?:(?: (?i:by))?:?[ \t]{{0,3}}{_BY})?\.?",
        "dictation": rf"(?i:dictated|transcribed)(?: (?i:(?:but|and) not read))?{_WHEN}"
        rf"(?: (?i:by):?[ \t]{{0,3}}{_BY})?\.?"
        r"|(?i:(?:dictated|transcribed) using (?:dragon|medical|voice|speech|recognition|dictation|software|[ -])+)\.?",
        "voice": r"(?i:this (?:note|report|document|dictation) (?:was|has been|may have been|is)"
        rf"(?:[ ,]{{1,3}}{_TOLD}){{1,12}}[ ,]{{1,3}}(?:voice|speech)[- ]recognition(?:[ ,;]{{1,3}}{_TOLD}){{0,30}})\.?",
        "page": r"(?i:page:? \d{1,4}(?: (?:of|/) \d{1,4})?)",
        "rule": rf"[_=*#~-]{{20,{_LONGEST}}}",
        "end": r"(?i:end of (?:report|note|document))\.?",
    }.items()
}
"""Whole lines that systems write, by what they are."""
