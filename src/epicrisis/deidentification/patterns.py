"""Identifiers that have a form: numbers behind labels, telephone numbers, addresses, ages over 89."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from epicrisis.deidentification.spans import Identifier, IdentifierKind

# A number or code behind its label: at least one digit, at most a few groups.
_CODE = r"(?P<value>(?=[A-Z-]{0,8}\d)[A-Z0-9]+(?:[-./ ]?[A-Z0-9]*\d[A-Z0-9]*){0,5})"
_TO_CODE = r"(?:\s{0,2}(?:number|no\.?|nr\.?|num|\#|id|code|is|was|of|:|=|-)){0,3}\s{0,3}"
_LABELS: Mapping[IdentifierKind, str] = {
    "fax": r"fax|facsimile|f",
    "record-number": r"mrn|m\.r\.n\.|medical\s+record|med\.?\s*rec\.?|chart|patient\s+id|pt\s+id|pat\.?\s*id"
    r"|unit|hospital"
    r"|encounter|visit|admission|case|accession|acc|csn|patient",
    "health-plan": r"health\s+plan|insurance|member|subscriber|policy|medicare|medicaid|beneficiary|group|hicn?"
    r"|mbi|plan",
    "account": r"account|acct|billing|bank|iban|guarantor|invoice",
    "licence": r"licen[cs]e|driver'?s?\s+licen[cs]e|dl|dea|npi|certificate|cert|passport|state\s+id",
    "vehicle": r"licen[cs]e\s+plate|plate|vin|vehicle|registration",
    "device": r"serial|ser|s/n|sn|device|udi|lot|implant|pacemaker\s+model|model\s+no|imei",
    "ssn": r"ssn|ss|social\s+security|soc\.?\s*sec\.?",
    "other-id": r"id|identifier|badge|employee|specimen|order|study|protocol|reference|ref|pager|beeper|barcode"
    r"|fingerprint"
    r"|voiceprint|trial",
}
_LABEL_END = r"(?:\s{0,2}(?:number|no\.?|nr\.?|num|\#|id|code|:|=)){1,3}\s{0,3}(?:is\s|was\s)?"
_SHORT_NUMBER = 4
"""Fewer digits behind a label are a count or a dose."""
LABEL_PATTERNS = {
    kind: re.compile(rf"(?<![^\W_])(?:{labels}){_LABEL_END}{_CODE}(?![^\W_])", re.IGNORECASE | re.ASCII)
    for kind, labels in _LABELS.items()
}
SURE_LABELS = re.compile(
    rf"(?<![^\W_])(?:mrn|ssn|dea|npi|hicn|mbi|csn|vin|acct|plate|member\s+id"
    rf"|medical\s+record){_TO_CODE}{_CODE}(?![^\W_])",
    re.IGNORECASE | re.ASCII,
)
_SURE_KINDS: Mapping[str, IdentifierKind] = {
    "ssn": "ssn",
    "dea": "licence",
    "npi": "licence",
    "vin": "vehicle",
    "pla": "vehicle",
    "acc": "account",
}
PHONE_LABEL = re.compile(
    r"(?<![^\W_])(?P<label>fax|facsimile|tel(?:ephone)?|phone|ph|cell|mobile|home|work|pager|beeper|call(?:ed)?"
    r"|contact"
    r"|ext(?:ension)?|callback|reached?"
    r"|dial)\b[^\d\n]{0,20}?(?P<value>\+?\(?\d(?:[\d().\- /]{2,18}\d)(?:\s?(?:x|ext\.?)\s?\d{1,6})?)",
    re.IGNORECASE | re.ASCII,
)
PHONE = re.compile(
    r"(?<![\w.])(?:\+?\d{1,3}[-. ]{1,2})?(?:\(\d{3}\)[-. \n]{0,2}"
    r"|\d{3}[-. /\n]{1,2})\d{3}[-. \n]{1,2}\d{4}(?:\s?(?:x|ext\.?)\s?\d{1,6})?"
    r"(?![\w])|(?<![\w.])\+\d{1,3}(?:[-. ]?\(?\d{1,5}\)?){2,6}(?!\w)",
    re.ASCII,
)
LOCAL_PHONE = re.compile(r"(?<![\w./-])[2-9]\d{2}-\d{4}(?![\w/-])", re.ASCII)
LONG_NUMBER = re.compile(
    r"(?<![\w.])(?:\d[ -]?){6,18}\d(?![\w]|\.\d|\s?(?:units?|iu|copies|cells|/))", re.ASCII | re.IGNORECASE
)
SOCIAL_SECURITY = re.compile(
    r"(?<![\w-])(?:\d{3}[- ]\d{2}[- ]\d{4}|(?:xxx|\*\*\*)-(?:xx|\*\*)-\d{4})(?![\w-])", re.ASCII | re.IGNORECASE
)
EMAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}\s?(?:@|\(at\)|\[at\])\s?[\w-]{1,63}(?:(?:\.|\s?(?:\[dot\]"
    r"|\(dot\))\s?)[\w-]{1,63}){1,4}"
)
URL = re.compile(
    r"\b(?:https?|ftp)://[^\s<>\"')\]]{2,400}(?<![.,;:])|\bwww\.[^\s<>\"')\]]{3,200}"
    r"|(?<![\w@./])(?:[a-z0-9-]{2,63}\.){1,3}(?:com|org|net|edu|gov|info|health"
    r"|io)(?:/[^\s<>\"')\]]{0,200})?(?![\w@])",
    re.IGNORECASE,
)
IP_ADDRESS = re.compile(
    r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w]|\.\d)"
    r"|(?<![\w:])(?=[0-9a-f:]*::?[0-9a-f])(?:[0-9a-f]{1,4}:){2,7}(?::?[0-9a-f]{1,4}){1,6}(?![\w:])",
    re.IGNORECASE | re.ASCII,
)
MAC_ADDRESS = re.compile(r"(?<![\w:-])(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}(?![\w:-])", re.IGNORECASE | re.ASCII)
VEHICLE_NUMBER = re.compile(
    r"(?<!\w)(?=[A-HJ-NPR-Z0-9]{0,16}\d)(?=[0-9]{0,16}[A-HJ-NPR-Z])[A-HJ-NPR-Z0-9]{17}(?!\w)", re.ASCII
)
MIXED_CODE = re.compile(
    r"(?<![\w.])(?=[A-Z-]{0,6}\d)[A-Z]{1,4}-?\d{5,12}(?:-\d{1,6}){0,3}(?!\w)"
    r"|(?<![\w.])\d{2,4}-[A-Z]{1,4}-?\d{3,8}(?!\w)",
    re.ASCII,
)
_NUMBER_WORDS = (
    "ninety(?:[- ](?:one|two|three|four|five|six|seven|eight|nine))?"
    "|one hundred(?:(?: and)? (?:one|two|three|four|five))?"
)
_OLD = rf"(?P<value>9\d|1[01]\d|{_NUMBER_WORDS})"
AGES = (
    re.compile(
        rf"(?<![\w.]){_OLD}(?=[- ]{{0,2}}(?:years?|yrs?\.?|y)[- ]{{0,2}}(?:old|of[- ]age|/?o\.?)?(?![^\W_]))",
        re.IGNORECASE | re.ASCII,
    ),
    re.compile(rf"(?<![\w.]){_OLD}(?=\s?(?:y/o|y\.o\.?|yo|yof|yom|yr|f|m)(?![^\W_]))", re.IGNORECASE | re.ASCII),
    re.compile(
        rf"(?<![^\W_])(?:age[ds]?|turn(?:ed|s|ing)|at the age of)\s{{0,2}}(?::|is|was"
        rf"|of)?\s{{0,2}}{_OLD}(?![\w%.]\d|[\w%])",
        re.IGNORECASE | re.ASCII,
    ),
    re.compile(r"\bin (?:his|her|their) (?:late |early |mid[- ]?)?(?P<value>90s|nineties|100s)\b", re.IGNORECASE),
)
_STREETS = (
    r"street|st|avenue|ave|av|road|rd|drive|dr|lane|ln|boulevard|blvd|court|ct|place|pl|terrace|ter|way|circle"
    r"|cir|parkway|pkwy"
    r"|square|sq|highway|hwy|trail|trl|alley|crescent|close|row|walk|stra(?:ss|ß)e|weg|platz"
)
_UNIT = r"(?:,?\s{1,2}(?:apt|apartment|unit|suite|ste|floor|fl|room|\#)\.?\s?\#?\s?[\w-]{1,6})?"
_STATES = (
    "AL|AK|AZ|AR|CA|CO|CT|DE|FL|GA|HI|ID|IL|IN|IA|KS|KY|LA|ME|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM|NY|NC|ND|OH"
    "|OK|OR|PA|RI|SC|SD"
    "|TN|TX|UT|VT|VA|WA|WV|WI|WY|DC"
)
_STATE_NAMES = (
    "Alabama|Alaska|Arizona|Arkansas|California|Colorado|Connecticut|Delaware|Florida|Georgia|Hawaii|Idaho"
    "|Illinois|Indiana|Iowa"
    "|Kansas|Kentucky|Louisiana|Maine|Maryland|Massachusetts|Michigan|Minnesota|Mississippi|Missouri|Montana"
    "|Nebraska|Nevada"
    "|New Hampshire|New Jersey|New Mexico|New York|North Carolina|North Dakota|Ohio|Oklahoma|Oregon"
    "|Pennsylvania|Rhode Island"
    "|South Carolina|South Dakota|Tennessee|Texas|Utah|Vermont|Virginia|Washington|West Virginia|Wisconsin|Wyoming"
)
_TOWN = r"(?:(?:St|Mt|Ft)\. )?[A-Z][A-Za-z'-]{1,20}(?:[ \n][A-Z][A-Za-z'-]{1,20}){0,2}"
STREET = re.compile(
    rf"(?<![\w/.-])\d{{1,5}}[A-Z]?(?:-\d{{1,4}})?,?\s{{1,2}}"
    r"(?!(?:mg|mcg|ml|by|seen|and|at|of|to|with|on|per|for|years?|days?|hours?|weeks?|months?)\b)"
    rf"(?:[NSEW]\.?\s)?(?:\d{{1,3}}(?:st|nd|rd|th)"
    rf"|[^\W\d_][\w'-]{{1,20}})"
    rf"(?:\s[^\W\d_][\w'-]{{1,20}}){{0,2}}?\s(?:{_STREETS})(?![^\W_])\.?{_UNIT}",
    re.IGNORECASE,
)
POST_BOX = re.compile(r"\bP\.?\s?O\.?\s?Box\s\d{1,7}", re.IGNORECASE)
TOWN_STATE = re.compile(
    rf"(?<![^\W_])(?P<value>{_TOWN})(?:,\s{{1,2}}(?:{_STATES})|,?\s{{1,2}}(?:{_STATE_NAMES}))(?![^\W_])"
)
ZIP_CODE = re.compile(
    rf"(?<![^\W_])(?:(?:{_STATES}|{_STATE_NAMES}),?\s{{1,2}}"
    rf"|zip(?:\s?code)?:?\s{{0,2}})(?P<value>\d{{5}}(?:-\d{{4}})?)(?![\w-])",
    re.IGNORECASE,
)
TOWN = re.compile(
    rf"\b(?i:lives?|living|resid(?:es|ing|ent)|moved|relocated|travell?ed|born|raised|grew up|originally|native"
    rf"|visiting|home|works?|"
    rf"transferred|flew|came|stays?|staying)\s(?:(?:alone|now|back|up|here|with \w+ \w+)\s)?(?:in|from|to|of"
    rf"|near|at|outside)\s"
    rf"(?P<value>{_TOWN})"
)
INSTITUTION = re.compile(
    r"(?<![^\W_])(?P<value>(?:St\.?\s|Saint\s|Mount\s|Mt\.?\s)?[A-Z][\w'-]{2,20}(?:\s(?:of\s"
    r"|the\s)?[A-Z][\w'-]{2,20}){0,3})\s"
    r"(?:General\s|Memorial\s|Community\s|Regional\s|University\s|County\s|Medical\s|Children's\s|Veterans\s){0,3}"
    r"(?:Hospital|Hospice|Medical Center|Clinic|Infirmary|Nursing (?:Home|Facility)"
    r"|Rehab(?:ilitation)?(?: Center| Facility)?|Pharmacy"
    r"|Health System|Healthcare|High School|Elementary School|Assisted Living|Senior Living"
    r"|Retirement Community|Church|University|College)\b"
)
_VALUE_PATTERNS: tuple[tuple[IdentifierKind, re.Pattern[str]], ...] = (
    *LABEL_PATTERNS.items(),
    *(("age", pattern) for pattern in AGES),
    ("place", TOWN_STATE),
    ("place", ZIP_CODE),
    ("place", TOWN),
    ("place", INSTITUTION),
)
_WHOLE_PATTERNS: tuple[tuple[IdentifierKind, re.Pattern[str]], ...] = (
    ("email", EMAIL),
    ("url", URL),
    ("ip", IP_ADDRESS),
    ("device", MAC_ADDRESS),
    ("ssn", SOCIAL_SECURITY),
    ("phone", PHONE),
    ("phone", LOCAL_PHONE),
    ("vehicle", VEHICLE_NUMBER),
    ("other-id", LONG_NUMBER),
    ("other-id", MIXED_CODE),
    ("place", STREET),
    ("place", POST_BOX),
)
PATTERNS = (*_VALUE_PATTERNS, *_WHOLE_PATTERNS)


def find_patterns(text: str) -> Iterator[Identifier]:
    """Yield the identifiers of a text that have a form, except dates and names. They may overlap."""
    for kind, pattern in _WHOLE_PATTERNS:
        for match in pattern.finditer(text):
            yield Identifier(match.start(), match.end(), kind)
    for kind, pattern in _VALUE_PATTERNS:
        for match in pattern.finditer(text):
            start, end = match.span("value")
            if kind in ("age", "place") or sum(map(str.isdecimal, text[start:end])) >= _SHORT_NUMBER:
                yield Identifier(start, end, kind)
    for match in SURE_LABELS.finditer(text):
        label = match[0][:3].casefold()
        yield Identifier(*match.span("value"), _SURE_KINDS.get(label, "record-number"))
    for match in PHONE_LABEL.finditer(text):
        is_fax = match["label"].casefold().startswith("fa")
        digits = sum(map(str.isdecimal, match["value"]))
        if digits >= _SHORT_NUMBER:
            yield Identifier(*match.span("value"), "fax" if is_fax else "phone")
