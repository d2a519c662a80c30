"""Identifiers that have a form: numbers behind labels, telephone numbers, addresses, ages over 89."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from epicrisis.privacy.deidentification.eponyms import CLINICAL_NOUNS, EPONYMS, WARDS
from epicrisis.privacy.deidentification.name_lists import LOWER, UPPER
from epicrisis.privacy.deidentification.spans import Identifier, IdentifierKind

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
_FREE_GROUP = r"[A-Za-z]{0,6}\d[A-Za-z\d]{0,30}"
_FREE_CODE = (
    rf"(?P<value>(?:[A-Z]{{1,5}}[-./ ]?)?{_FREE_GROUP}"
    rf"(?:[-./\u2010-\u2013]{{1,2}}(?:{_FREE_GROUP}|[A-Z]{{1,4}}(?![^\W_]))"
    rf"|[ ]?\([0-9]{{1,4}}\)[ ]?{_FREE_GROUP}"
    rf"|[ ](?=[A-Za-z]{{0,2}}\d\w){_FREE_GROUP}(?![ ]?(?i:mg|ml|mcg|units?|cm|mm|kg|am|pm|%))){{0,8}})"
)
"""A number or code of several groups, each with a digit, or with a few capitals behind a sign."""
_FREE_LABELS: Mapping[IdentifierKind, str] = {
    "record-number": r"mrn|m\.r\.n\.|ur|urn|chart|medical\s+record|hosp(?:ital)?|unit|encounter|visit|case"
    r"|accession|csn|wristband|record",
    "health-plan": r"medicare|medicaid|insurance|policy|member|subscriber|beneficiary|health\s+plan|plan|hicn|mbi",
    "account": r"account|acct|iban|invoice|card|visa|mastercard",
    "licence": r"(?:driver'?s?\s+)?licen[cs]e|dl|dea|npi|passport|certificate",
    "device": r"s/n|sn|serial|ser\.?|udi|imei|lot|implant|device|pump|ventilator|model|pacemaker|icd|sensor|stimulator",
    "ssn": r"ssn?|social(?:\s+security)?|soc\.?\s*sec\.?",
    "other-id": r"study|trial|badge|employee|specimen|order|ticket|barcode|bar\s+code|protocol|reference|ref"
    r"|pager|beeper|page|paged|paging|(?-i:ID)",
}
_LABEL_WORDS = r"(?:\s{0,2}(?:number|numbers|no|nr|num|id|code|serial|s/n|sn|is|was|acct|[.:=\#(,]|(?-i:\b)-)){0,5}"
_LABEL_OF = r"(?:\s(?:of|for)(?:\s[\w-]{1,20}){1,4}(?=\s?[:=]|\s(?:is|was)\s))?"
_FREE_LABEL_END = rf"{_LABEL_WORDS}{_LABEL_OF}{_LABEL_WORDS}\s{{0,3}}\(?"
FREE_LABELS = {
    kind: re.compile(rf"(?<![^\W_])(?i:(?:{labels})(?![^\W_]){_FREE_LABEL_END}){_FREE_CODE}(?![^\W_])")
    for kind, labels in _FREE_LABELS.items()
}
"""A label and a code, with or without a word such as `number` between."""
NUMBER_SIGN = re.compile(rf"(?<![\w#])#\s?{_FREE_CODE}(?![^\W_])")
LAST_DIGITS = re.compile(
    r"(?<![^\W_])(?:ending|ends|last (?:four|4))(?:\s(?:digits|of|in|with|ssn|is|are|vin)){0,3}[:\s]{1,3}"
    r"(?P<value>\d{3,6})(?!\w)"
    r"|(?:xxx|\*{3})-(?:xx|\*{2})-(?P<tail>\d{4})(?!\w)",
    re.IGNORECASE,
)
UNIQUE_DEVICE = re.compile(r"\(01\)\d{14}(?:\(\d{2}\)[A-Za-z0-9-]{1,20}){0,4}")
_PLATE = (
    r"(?:\d{1,4}[- ]?[A-Z]{2,3}[- ]?\d{0,4}|[A-Z]{1,3}[- ]?[A-Z]{0,2}[- ]?\d{2,4}[ ]?[A-Z]{0,3}"
    r"|[A-Z]{2}\d{2}[ ]?[A-Z]{3})"
)
PLATE = re.compile(
    r"(?<![^\W_])(?i:(?:number\s|licen[cs]e\s)?plates?|registration|reg|tag|permit|tags"
    r"|licen[cs]e\splates?|car|van|truck"
    r"|pickup|suv|sedan|motorcycle|motorbike|scooter|vehicle|taxi|cab|trailer|subaru|honda|toyota"
    r"|ford|bmw|volvo|tesla|vw|volkswagen"
    r"|audi|nissan|mazda|hyundai|kia|jeep|chevrolet|chevy|dodge|renault|fiat|peugeot|opel|skoda|mercedes)"
    rf"(?i:\s{{0,2}}(?:number|no|nr|is|was|for|with|plates?|registration|tag|reg|[.:=\#(,]|read(?:s|ing)?)){{0,4}}\s{{0,2}}(?P<value>{_PLATE})"
    r"(?![^\W_])"
)
CHASSIS = re.compile(
    r"(?<![^\W_])(?:vin|chassis|vehicle id(?:entification)?)"
    r"(?:\s?(?:number|no|nr|is|was|ending(?: in)?|\(?vin\)|[.:=\#,(])){0,5}"
    r"(?:\s(?:of|for)(?:\s[\w-]{1,20}){1,4}\s?[:=])?\s{0,2}"
    r"(?P<value>(?=[A-Z ]{0,8}\d)[A-Z0-9]{3,17}(?:[- ](?=[A-Z]{0,3}\d)[A-Z0-9]{1,8}){0,4})(?![^\W_])",
    re.IGNORECASE | re.ASCII,
)
_EXTENSIONS = (
    r"pdf|docx?|txt|rtf|dcm|dicom|jpe?g|png|tiff?|bmp|gif|heic|xlsx?|csv|tsv|xml|json|html?|zip|gz"
    r"|tar|pptx?|odt|ods|log|dat"
    r"|hl7|eml|msg|mp3|mp4|wav|avi|mov|edf|ekg|nii|bak"
)
FILE_NAME = re.compile(
    rf"(?<![\w@.-])(?P<value>(?:[{UPPER}][\w'\u2019-]{{0,30}},?[ ](?:[-_][ ])?(?:consent[ ])?){{0,4}}"
    r"(?=[\w(])[\w.,'\u2019^&()+\u2010-\u2013-]{1,100})"
    rf"\.(?i:{_EXTENSIONS})(?![^\W_])"
)
"""The name of a file, without its extension. Words with a capital before it belong to it."""
FILE_WORD = re.compile(r"[^\W\d_]{3,}")
"""A word in the name of a file. Beside a date it is too short for `merge_identifiers`: `20190304_Ypma`."""
PATH = re.compile(
    r"(?<![\w/.:<])(?P<value>(?:~|\.{1,2})?(?:/[\w.^+@%'\u2019-]{1,60}){2,10})(?![\w/])"
    r"|(?<![\w/.:])(?P<share>(?:[A-Z]:\\(?![nrt][A-Z\\])|\\\\)"
    r"(?:[\w.^+@' ,\u2019-]{1,60}\\){0,10}[\w.^+@'\u2019-]{1,60})"
    r"|(?<![\w/.:])(?P<folder>(?i:[\w-]{2,30}\.local|intranet|pacs|portal|archive|share|records?|patients?|charts?)"
    r"(?:/[\w.^+@'\u2019-]{1,60}){2,8})(?![\w/])",
)
HANDLE = re.compile(r"(?<![\w@./+-])(?:@[ ]?|(?<!/)\bu/)(?P<value>[^\W\d][\w.'\u2019-]{1,40}\w)(?!@)")
COORDINATES = re.compile(
    r"(?<![\w.])(?P<value>-?\d{1,3}\.\d{3,8}\u00b0?\s?[NS]?,?\s{1,2}-?\d{1,3}\.\d{3,8}\u00b0?\s?[EW]?"
    r""
    r"|\d{1,3}\u00b0\s?\d{1,2}['\u2032]\s?[\d.]{0,6}[\"\u2033]?\s?[NS],?\s?\d{1,3}\u00b0\s?\d{1,2}['\u2032]\s?[\d.]{0,6}[\"\u2033]?\s?[EW])"
    r"(?!\w)"
)
_HOLIDAYS = (
    r"christmas(?:\s(?:day|eve))?|boxing day|thanksgiving(?:\sday)?|new year'?s?\s(?:day|eve)"
    r"|easter(?:\s(?:sunday|monday))?"
    r"|good friday|the fourth of july|4th of july|independence day|labou?r day|memorial day|veterans day|halloween"
    r"|valentine'?s day|mother'?s day|father'?s day|columbus day|presidents'? day|martin luther king day|juneteenth"
    r"|st\.? patrick'?s day|all saints'? day|ash wednesday|palm sunday|whit ?sun(?:day)?|pentecost"
    r"|rosh hashanah|yom kippur"
    r"|hanukkah|passover|eid(?: (?:al|ul)-(?:fitr|adha))?|diwali|chinese new year|lunar new year|nowruz"
    r"|(?:whit|low|clean|shrove|maundy|holy|easter|palm|rose|black|cyber|trinity|advent|laetare)"
    r" (?:mon|tues|wednes|thurs|fri|satur|sun)day|holy week|mardi gras|shrovetide|michaelmas|candlemas"
    r"|martinmas|lammas|all hallows'? eve|purim|sukkot|shavuot|simchat torah|tisha b'av|ramadan|ashura|mawlid|holi"
    r"|navaratri|dussehra|onam|pongal|vesak|songkran|obon|chuseok|kwanzaa|cinco de mayo|d[i\u00ed]a de (?:los )?muertos"
    r"|corpus christi(?! (?:hospital|clinic))|twelfth night|(?-i:Epiphany|Pesach|T\u1ebft)"
)
HOLIDAY = re.compile(
    rf"(?<![^\W_])(?:{_HOLIDAYS})(?![^\W_])(?:,?\s(?:of\s)?(?:19|20)\d\d(?!\d))?(?!\s(?:disease|factor))", re.IGNORECASE
)
NAMED_DAY = re.compile(
    r"(?<![^\W_])(?!(?:Hospital|Operative|Postoperative|Post|Each|Every|Same|Next|This|Last|Late|One|All|Per|Rest|Work"
    r"|Sick|Cycle|Treatment|Week|Any|Another|First|Second|Third|The|That|Mid|Good|To|By|A|Dose|Days?|Half|Whole|Previous)\b)"
    rf"[{UPPER}][{LOWER}'\u2019]{{2,20}}(?:[ ][{UPPER}][{LOWER}'\u2019.]{{1,20}}){{0,2}}[ ](?:Day|Eve|Night)(?![^\W_])"
    r"(?![ ]\d{1,2}(?!\d)|[ ](?:Shift|Care|Center|Centre|Surgery|Clinic|Unit))(?:(?:,|[ ]of)?[ ](?:19|20)\d\d(?!\d))?"
)
"""A day that is called something: `Anzac Day 2019`. `Hospital Day 3` is none."""
PHONE_LABEL = re.compile(
    r"(?<![^\W_])(?P<label>fax|facsimile|tel(?:ephone)?|phone|ph|cell|mobile|home|work|pager|beeper|call(?:ed)?"
    r"|contact"
    r"|ext(?:ension)?|callback|reached?"
    r"|dial)\b[^\d\n]{0,20}?"
    r"(?P<value>\+?[(\[]?\d(?:[\d()\].\- /\u00b7\u2010-\u2013]{2,20}\d)(?:\s?(?:x|ext\.?)\s?\d{1,6})?)",
    re.IGNORECASE | re.ASCII,
)
PHONE = re.compile(
    r"(?<![\w.])(?:\+?\d{1,3}[-. \u00b7\u2010-\u2013]{1,2})?(?:[(\[]\d{3}[)\]][-. \n]{0,2}"
    r"|\d{3}[-. /\n\u00b7\u2010-\u2013]{1,3})\d{3}[-. \n\u00b7\u2010-\u2013]{0,3}\d{4}(?:\s?(?:x|ext\.?)\s?\d{1,6})?"
    r"(?![\w])|(?<![\w.])(?:\+|00)\d{1,3}(?:[-. ]?\(?\d{1,5}\)?){2,6}(?!\w)|(?<![\w.])0\d{2,4}[ -]\d{3,8}(?!\w)",
    re.ASCII,
)
LOCAL_PHONE = re.compile(r"(?<![\w./-])[2-9]\d{2}-\d{4}(?![\w/-])", re.ASCII)
LONG_NUMBER = re.compile(
    r"(?<![\w.])(?:\d[ -]?){6,18}\d(?![\w]|\.\d|\s?(?:units?|iu|copies|cells|/))", re.ASCII | re.IGNORECASE
)
SOCIAL_SECURITY = re.compile(
    r"(?<![\w-])(?:\d{3}[- .\u2010-\u2013]\d{2}[- .\u2010-\u2013]\d{4}|(?:xxx|\*\*\*)-(?:xx|\*\*)-\d{4})(?![\w-])",
    re.ASCII | re.IGNORECASE,
)
EMAIL = re.compile(
    r"(?<![\w.+'-])[\w.+'\u2019-]{1,64}\s?(?:@|\(at\)|\[at\])\s?[\w-]{1,63}(?:(?:[.\u2024\u3002\uff0e]|\s?(?:\[dot\]"
    r"|\(dot\))\s?)[\w-]{1,63}){1,4}"
    r"|(?<![\w.+'-])[\w.+'\u2019-]{1,64}\sat\s[\w-]{1,63}(?:\s(?:dot)\s[\w-]{1,63}){1,4}"
    r"|(?<![\w.+'-])[\w.+'\u2019-]{1,64}\s?@\s?[\w-]{1,63}\s?\.\s?(?:com|org|net|edu|de|ch|uk)(?!\w)"
    r"|(?<![\w.+'-])(?=[\w.+-]{0,20}[^\W\d_]{3})[\w.+'\u2019-]{3,64}@(?=[\w-]{0,20}[^\W\d_]{4})[\w-]{4,63}(?![\w.]*@)",
    re.IGNORECASE,
)
_TOP_DOMAINS = (
    r"com|org|net|edu|gov|info|health|io|de|ch|uk|fr|nl|eu|ca|au|nz|ie|jp|blog|app|dev|local|lan"
    r"|example|hospital|clinic|care"
    r"|online|site|xyz|biz|page|link|social|wiki|cloud"
)
URL = re.compile(
    r"\b(?:h(?:tt|xx)ps?|ftp|sftp|file)://[^\s<>\"')\]]{2,400}(?<![.,;:])|\bwww\.[^\s<>\"')\]]{3,200}(?<![.,;:])"
    rf"|(?<![\w@./])(?:[\w'-]{{2,63}}\.){{1,3}}(?:{_TOP_DOMAINS})(?:[/?][^\s<>\"')\]]{{0,200}}(?<![.,;:]))?(?![\w@])"
    r"|(?<![\w@./])(?:[\w-]{2,63}\.){1,3}(?:gl|be|ly|me|co|to|tv)/[^\s<>\"')\]]{1,200}(?<![.,;:])"
    r"|(?<![\w@./])(?:intranet|portal|sharepoint)(?:/[^\s/<>\"')\]]{1,80}){1,6}(?<![.,;:])",
    re.IGNORECASE,
)
IP_ADDRESS = re.compile(
    r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:[:/]\d{1,5})?(?![\w]|\.\d)"
    r"|(?<![\w:])(?=[0-9a-f:]*::?[0-9a-f])(?:[0-9a-f]{1,4}:){2,7}(?::?[0-9a-f]{1,4}){1,6}(?![\w:])",
    re.IGNORECASE | re.ASCII,
)
MAC_ADDRESS = re.compile(
    r"(?<![\w:-])(?:(?:[0-9a-z]{2}[:-]){5}[0-9a-z]{2}|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4})(?![\w:-])",
    re.IGNORECASE | re.ASCII,
)
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
    "|(?:one|a) hundred(?:(?: and)? (?:one|two|three|four|five|six|seven|eight|nine))?"
)
_OLD = rf"(?P<value>9\d|1[01]\d|{_NUMBER_WORDS})"
AGES = (
    re.compile(
        rf"(?<![\w.]){_OLD}(?=[- ]{{0,2}}(?:years?|yrs?\.?|y)[- ]{{0,2}}(?:old|of[- ]age|/?o\.?)?(?![^\W_]))",
        re.IGNORECASE | re.ASCII,
    ),
    re.compile(rf"(?<![\w.]){_OLD}(?=\s?(?:y/o|y\.?\s?o\.?|yo|yof|yom|yr|f|m)(?![^\W_]))", re.IGNORECASE | re.ASCII),
    re.compile(
        rf"(?<![^\W_])(?:age[ds]?|turn(?:ed|s|ing)|at the age of)\s{{0,2}}(?::|is|was"
        rf"|of)?\s{{0,2}}{_OLD}(?![\w%.]\d|[\w%])",
        re.IGNORECASE | re.ASCII,
    ),
    re.compile(r"\bin (?:his|her|their) (?:late |early |mid[- ]?)?(?P<value>90s|nineties|100s)\b", re.IGNORECASE),
    re.compile(r"\b(?P<value>nonagenarians?|(?:super)?centenarians?)\b", re.IGNORECASE),
)
_STREETS = (
    r"street|st|avenue|ave|av|road|rd|drive|dr|lane|ln|boulevard|blvd|court|ct|place|pl|terrace|ter|way|circle"
    r"|cir|parkway|pkwy"
    r"|square|sq|highway|hwy|trail|trl|alley|crescent|close|row|walk|hollow|mews|loop|crossing"
    r"|gardens|grove|green|hill|rise|view"
    r"|vale|wharf|yard|path|pike|run|bend|ridge|cove|landing|pass|quay|stra(?:ss|ß)e|weg|platz|gasse|allee"
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
STATES = frozenset(_STATE_NAMES.casefold().split("|"))
_TOWN_PART = rf"[{UPPER}][{UPPER}{LOWER}'-]{{1,20}}"
_TOWN = rf"(?:(?:St|Mt|Ft)\. )?{_TOWN_PART}(?:[ \n](?:(?:Ste?\.|or|of|on|du|de|la|am|St) )?{_TOWN_PART}){{0,2}}"
STREET = re.compile(
    rf"(?<![\w/.-])\d{{1,5}}[A-Z]?(?:-\d{{1,4}})?,?\s{{1,2}}"
    r"(?!(?:mg|mcg|ml|by|seen|and|at|of|to|with|on|per|for|years?|days?|hours?|weeks?|months?)\b)"
    rf"(?:[NSEW]\.?\s)?(?:\d{{1,3}}(?:st|nd|rd|th)"
    rf"|[^\W\d_][\w'-]{{1,20}})"
    rf"(?:\s[^\W\d_][\w'-]{{1,20}}){{0,2}}?\s(?:{_STREETS})(?![^\W_])\.?{_UNIT}",
    re.IGNORECASE,
)
_STREET_WORD = rf"[{UPPER}][\w'\u2019-]{{1,24}}"
_SURE_STREETS = (
    r"Street|St|Avenue|Ave|Road|Rd|Drive|Lane|Ln|Boulevard|Blvd|Terrace|Parkway|Pkwy|Highway|Hwy"
    r"|Crescent|Hollow|Mews|Loop"
    r"|Crossing|Alley|Way|Court|Place|Square|Trail|Circle"
)
NAMED_STREET = re.compile(
    rf"(?<![^\W_])(?P<value>{_STREET_WORD}(?:\s{_STREET_WORD})?\s(?:{_SURE_STREETS})(?![^\W_])\.?(?:\s\d{{1,4}}[A-Za-z]?(?!\w))?"
    rf"(?:\s(?:and|&|/)\s{_STREET_WORD}(?:\s{_STREET_WORD})?\s(?:{_SURE_STREETS})(?![^\W_]))?)"
    rf"|(?<![^\W_])(?P<german>[{UPPER}][\w-]{{1,24}}?(?:stra(?:ss|ß)e|str\.|weg|platz|gasse|allee|ring|damm|gata|gatan|straat|laan)\s\d{{1,4}}[a-z]?)(?!\w)"
    rf"|(?<![^\W_])(?P<french>(?:\d{{1,4}}(?:\s?bis)?,?\s)?(?:[Rr]ue|[Aa]venue|[Bb]oulevard|[Pp]lace|[Vv]ia|[Cc]alle|[Pp]laza|[Rr]ua|[Vv]iale)\s"
    rf"(?:(?:de|du|des|la|le|les|del|della|di|los|las|do|da|l')\s){{0,2}}{_STREET_WORD}(?:\s{_STREET_WORD})?(?:,?\s\d{{1,4}}[A-Za-z]?(?!\w))?)"
)
POST_BOX = re.compile(r"\bP\.?\s?O\.?\s?Box\s\d{1,7}", re.IGNORECASE)
TOWN_STATE = re.compile(
    rf"(?<![^\W_])(?P<value>{_TOWN})(?:,\s{{1,2}}(?:{_STATES})|,?\s{{1,2}}(?:{_STATE_NAMES}))(?![^\W_])"
)
ZIP_CODE = re.compile(
    rf"(?<![^\W_])(?:(?:{_STATES}|{_STATE_NAMES}),?\s{{1,2}}|(?:zip|postal|post)(?:\s?code)?\s?(?:is|was|\#|no\.?)?[:\s]{{0,3}})"
    r"(?P<value>\d{5}(?:-\d{4})?)(?![\w])",
    re.IGNORECASE,
)
_NO_COUNT = (
    r"(?![\w-]|\.\d|[ ]?(?i:units?|copies|steps|cells|iu|mg|patients|women|men|people|children|persons|adults"
    r"|participants|cases|subjects))"
)
LOOSE_ZIP_CODE = re.compile(
    rf"(?<![\w.#-])(?P<plus>\d{{5}}(?:-\d{{4}}|-(?![\w-])))(?!\w)"
    rf"|(?<![^\W_])(?i:mail|address|ends?|pharmacy|area|moved|now|registered|resident|delivery|of|to|at|in|near|lives)\b[^\w\n]{{1,3}}"
    rf"(?:(?:in|of|to|at|with|near|on)\s)?(?P<code>\d{{5}}){_NO_COUNT}"
    rf"|(?<![^\W_])(?P<town>(?!(?i:ticket|pager|page|badge|employee|code|order|case|unit|number|member|mrn|id|no|of|than|with)\b){_TOWN},?\s{{1,2}}\d{{5}})"
    rf"{_NO_COUNT}"
    r"|(?<![\w.#-])(?P<country>\d{5}),?\s(?:USA|U\.S\.A|United States|Germany|France)(?!\w)"
    r"|(?<![^\W_])(?P<british>(?:GIR ?0AA|[A-Z]{1,2}\d[A-Z\d]? ?\d[ABD-HJLNP-UW-Z]{2}))(?![^\W_])"
)
_TOWN_WORD = rf"[{UPPER}][{LOWER}][\w'\u2019]{{0,20}}(?:-[\w'\u2019]{{1,20}}){{0,2}}"
TOWN = re.compile(
    r"\b(?i:lives?|lived|living|resid(?:es|ing|ent)|moved|relocated|travell?(?:s|ed|ing)?|born|raised|grew up"
    r"|originally|native|visit(?:s|ed|ing)?|home|works?|worked|farms?|farmed|hik(?:es|ed|ing)|drove"
    r"|drives?|returned|returning|back|trip|vacation|holiday"
    r"|transferred|flew|came|stays?|staying|stayed|treated|hospitali[sz]ed|admitted|seen|helicopter"
    r"|ambulance|bus|train|clinic|doctor"
    r"|dentist|hospital|house|flat|apartment|farm|family|follow-up|school|church|shop|store|bees|sheep|cattle|cabin"
    r"|cottage|boat"
    r"|evacuated|fled|deported|displaced|expelled|arrived|rescued"
    r"|diagnosed|operated|implanted|placed|inserted|put in|vaccinated"
    r"|bites?|stung|soldier|posted|holidays|semester"
    r"|settled|camp(?:s|ed|ing)|fish(?:ed|ing)|hunt(?:ed|ing)|fell|found|crash(?:ed)?|accident"
    r"|injured|bitten|exposed|immigrated"
    r"|emigrated|studied|studies|married|deployed|stationed|jail|prison|shelter|market|festival"
    r"|wedding|funeral|office|practice"
    r"|gp|pharmacy|rehab|college|mother|father|son|daughter|brother|sister|wife|husband|parents"
    r"|friend|uncle|aunt|cousin|niece"
    r"|nephew|grand\w{3,9}|widow|neighbou?r|appointment|review|referred|commut(?:es|ed|ing)"
    r"|walk(?:s|ed)|cycl(?:es|ed|ing)|teaches"
    r"|taught|serves|served|retired|spent|summers|winters|weekend|weekends|resident|passed|died|buried|baptized)"
    r"(?:,|:)?\s(?:[\w'-]{1,14},?\s){0,6}?(?:in|in from|from|to|of|near|at|outside|around|by|via|through)\s"
    r"(?<!died of\s)"
    rf"(?P<value>{_TOWN_WORD}(?:[ \n]{_TOWN_WORD}){{0,2}})"
)
OUTSIDE = re.compile(
    rf"\b(?:outside|near|close to|outskirts of|suburb of|city of|town of|village of)\s"
    rf"(?P<value>{_TOWN_WORD})(?![^\W_])"
)
_CLINICAL_END = re.compile(
    r"(?:logy|iatrics?|iatry|scopy|therapy|surgery|ectomy|otomy|plasty|itis|osis|emia|pathy|p(?:a?e)dics?|metry|graphy"
    r"|ation|esthesia|ema|oma)\Z"
)
_INSTITUTION_WORD = rf"[{UPPER}][\w'\u2019-]{{1,24}}"
_CARE = (
    r"Hospital|Hospice|Clinic|Infirmary|Pharmacy|Sanatorium|Sanitarium|Polyclinic|Asylum"
    r"|(?:Medical|Health|Healthcare|Surgical|Surgery|Cancer|Heart|Eye|Dialysis|Trauma|Birth|Imaging|Rehab(?:ilitation)?"
    r"|Wellness|Day|Treatment|Recovery|Care) (?:Cent(?:er|re)|Institute|Facility|Group|Campus)|Urgent Care"
    r"|Health System|Rehab(?:ilitation)?|Healthcare"
    r"|(?:Nursing|Care|Residential|Rest|Retirement) (?:Home|Facility|Community|Village)"
    r"|(?:Assisted|Senior|Independent) Living|(?:High|Elementary|Primary|Middle|Grammar) School|Church|University"
    r"|College"
)
INSTITUTION = re.compile(
    rf"(?<![^\W_])(?P<value>(?:(?:St|Mt)\.?\s)?{_INSTITUTION_WORD}(?:\s(?:of\s|the\s)?{_INSTITUTION_WORD}){{0,4}}?)\s"
    r"(?:General\s|Memorial\s|Community\s|Regional\s|University\s|County\s|Medical\s|Children's\s|Veterans\s"
    r"|Psychiatric\s|Maternity\s|Cottage\s|District\s|Teaching\s){0,3}"
    rf"(?:{_CARE})(?![^\W_])"
    r"|(?<![^\W_])(?:(?:Universit\u00e4ts|Kreis|Stadt|Landes)?(?:[Kk]linikum|[Kk]linik|[Kk]rankenhaus|[Ss]pital)"
    r"|H\u00f4pital|Hospital|Centre Hospitalier|Clinique|Cl\u00ednica|Ospedale|Policlinico|Sanatorio|Ziekenhuis"
    r"|Sjukhus(?:et)?|Sykehus(?:et)?|Sygehus|Szpital|Nemocnice|K\u00f3rh\u00e1z|Hastanesi)\s"
    r"(?:(?:de|del|della|du|des|la|le|di|da|do|dos|van|von|der|am|an|im|in|Our|Santa|San|Saint|Cl\u00ednicas)\s){0,3}"
    rf"(?P<foreign>(?!(?:Day|Course|Number|No|Admission|Discharge|Stay|Medicine)\b){_INSTITUTION_WORD}(?:\s{_INSTITUTION_WORD})?)"
)
_VALUE_PATTERNS: tuple[tuple[IdentifierKind, re.Pattern[str]], ...] = (
    *LABEL_PATTERNS.items(),
    *FREE_LABELS.items(),
    ("other-id", NUMBER_SIGN),
    ("vehicle", PLATE),
    ("vehicle", CHASSIS),
    ("account", LAST_DIGITS),
    *(("age", pattern) for pattern in AGES),
    ("place", TOWN_STATE),
    ("place", ZIP_CODE),
    ("place", LOOSE_ZIP_CODE),
    ("place", TOWN),
    ("place", OUTSIDE),
    ("place", NAMED_STREET),
    ("place", COORDINATES),
    ("place", INSTITUTION),
    ("name", HANDLE),
    ("other-id", FILE_NAME),
    ("other-id", PATH),
)
_WHOLE_PATTERNS: tuple[tuple[IdentifierKind, re.Pattern[str]], ...] = (
    ("email", EMAIL),
    ("url", URL),
    ("ip", IP_ADDRESS),
    ("device", MAC_ADDRESS),
    ("device", UNIQUE_DEVICE),
    ("ssn", SOCIAL_SECURITY),
    ("phone", PHONE),
    ("phone", LOCAL_PHONE),
    ("vehicle", VEHICLE_NUMBER),
    ("other-id", LONG_NUMBER),
    ("other-id", MIXED_CODE),
    ("place", STREET),
    ("place", POST_BOX),
    ("date", HOLIDAY),
    ("date", NAMED_DAY),
)
_NUMBERED = frozenset(LABEL_PATTERNS.values()) | frozenset(FREE_LABELS.values()) | {NUMBER_SIGN}
_PLACES = frozenset((TOWN, OUTSIDE))
_YEAR = re.compile(r"(?:19|20)\d\d")


def find_patterns(text: str) -> Iterator[Identifier]:
    """Yield the identifiers of a text that have a form, except dates and names. They may overlap."""
    for kind, pattern in _WHOLE_PATTERNS:
        for match in pattern.finditer(text):
            yield Identifier(match.start(), match.end(), kind)
    for kind, pattern in _VALUE_PATTERNS:
        for match in pattern.finditer(text):
            if pattern in _PLACES and _is_no_place(text, match):
                continue
            # Every alternative of a pattern has a group of its own, of which one matches.
            start, end = match.span(match.lastgroup or 0)
            if pattern not in _NUMBERED or _is_code(text[start:end]):
                yield Identifier(start, end, kind)
    for match in FILE_NAME.finditer(text):
        for word in FILE_WORD.finditer(match["value"]):
            yield Identifier(match.start("value") + word.start(), match.start("value") + word.end(), "name")
    yield from _find_labelled(text)


def _find_labelled(text: str) -> Iterator[Identifier]:
    """Yield record and telephone numbers behind their labels."""
    for match in SURE_LABELS.finditer(text):
        label = match[0][:3].casefold()
        yield Identifier(*match.span("value"), _SURE_KINDS.get(label, "record-number"))
    for match in PHONE_LABEL.finditer(text):
        is_fax = match["label"].casefold().startswith("fa")
        digits = sum(map(str.isdecimal, match["value"]))
        if digits >= _SHORT_NUMBER:
            yield Identifier(*match.span("value"), "fax" if is_fax else "phone")


def _is_no_place(text: str, match: re.Match[str]) -> bool:
    """Return whether words behind `in` or `to` are wards, treatments or diseases."""
    start, end = match.span(match.lastgroup or 0)
    words = [word.casefold() for word in re.findall(r"[^\W\d_]+", text[start:end])]
    following = re.match(r"[ ]([^\W\d_]{2,20})", text[end : end + 22])
    if words[-1] in EPONYMS and following is not None and following[1].casefold() in CLINICAL_NOUNS:
        return True
    is_before_care = following is not None and following[1].casefold() in WARDS
    return all(word in WARDS or _CLINICAL_END.search(word) for word in words) or (is_before_care and len(words) == 1)


def _is_code(value: str) -> bool:
    """Return whether a number or code behind a label may identify: enough digits, or digits among letters."""
    digits = sum(map(str.isdecimal, value))
    letters = sum(map(str.isalpha, value))
    return not _YEAR.fullmatch(value) and (
        digits >= _SHORT_NUMBER or (digits >= 2 and digits + letters >= 5 and "." not in value)
    )
