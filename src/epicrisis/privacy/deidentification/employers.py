"""Employers: the companies and offices that patients work for.

A phrase with capitals is an employer in three cases. Its own words tell it (`Pruitt Trucking`, `B&R Roofing`). The
words beside it do (`laid off by`, `employee`, `let him go`). Or its clause is about work, and the phrase stands where a
name stands: behind a preposition, a comma or a colon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from epicrisis.privacy.deidentification.eponyms import BRANDS, CLINICAL_NOUNS, EPONYMS, ORDINARY_WORDS, WARDS
from epicrisis.privacy.deidentification.name_lists import LOWER, UPPER
from epicrisis.privacy.deidentification.unlisted_names import CLINICAL_ENDING, DOSE, is_frequent

_REST = r"[\w'\u2019-]{0,24}"
_TOKEN = (
    rf"(?!A/S)(?:(?:[A-Z]\.){{1,3}}|(?:Bros|St|Mt|Ft)\.|[{LOWER}]?[{UPPER}]{_REST}(?:&[{UPPER}]{_REST})?"
    rf"|\d{{1,4}}(?:[A-EMN]|(?=[ ][{UPPER}])))(?![^\W_])"
)
_LINK = r"(?:(?:&|and|of|de|de la|du|del|la|le|van|von|der|upon)[ ])?"
_LEGAL = (
    r"(?:Inc|LLC|LLP|Ltd|GmbH|AG|SA|SAS|SARL|AB|AS|A/S|ASA|ApS|Oyj?|NV|BV|SE|KG|SpA|Srl|Kft|Lda|Pty|Bhd|Corp"
    r"|Corporation"
    r"|Co|PLC|plc|Company|Group|Co-op)"
)
_UNITS = r"mg|mcg|ml|g|kg|lbs?|units?|tabs?|times|hours?|hrs?|days?|weeks?|months?|years?|yrs?|am|pm|AM|PM|percent"
PHRASE = re.compile(
    rf"(?<![\w&'\u2019/.-]){_TOKEN}(?:[ ]{_LINK}{_TOKEN}){{0,5}}(?:[ ]\d{{1,4}}(?![\w%/]|\.\d"
    rf"|[ ]?(?:{_UNITS})(?![^\W_])))?"
    rf"(?:,?[ ]{_LEGAL}(?![^\W_]))?"
)
"""Words with capitals, initials and numbers: `4C Plastics`, `J.D. Whitley Roofing`, `eParcel`, `Pier 22`."""
_WORD = re.compile(r"[^\W_]+(?:['\u2019.-][^\W_]+)*")
_LEGAL_END = re.compile(rf"[ ]{_LEGAL}\Z")
_PUBLIC_BODY = re.compile(
    r"(?:Fire|Police|Sheriff(?:'s)?|School|Transit|Water|Sanitation|Public Works|Parks|Highway|Post|Housing|Port)[ ]"
    r"(?:Department|Dept|Office|District|Authority|Service|Works)\Z|(?:Air Force|Army|Naval) (?:Base|Station)\Z"
    r"|[ ]Credit Union\Z"
    r"|(?:City|County|Port|Town|Village|State) of [^ ]{2,30}\Z"
    r"|[ ](?:City|County|Town|State|Township|Borough|Parish)(?: [^ ]{2,20}){1,3} (?:Department|Office|Authority)\Z"
)
_SIGNED = re.compile(r"\b[A-Z]{1,2}[ ]?&[ ]?[A-Z]{1,2}\b")
_CAMEL = re.compile(rf"[{LOWER}]{{1,2}}[{UPPER}][{LOWER}]{{2,30}}\Z")
_NEXT = re.compile(r"[ ]([^\W\d_]{2,20})")
_CLAUSE_START = re.compile(r"[.;!?][ ]|\n")
_MOST_BESIDE = 90
"""Characters of a clause that are read before and after a phrase."""

_TRADE_WORDS = """
trucking foods logistics plumbing roofing paving towing moulding molding flooring salvage motors industries
manufacturing construction landscaping masonry carpentry joinery electric solar grocers grocery diner grill cafe bakery
pizza pizzeria restaurant donuts catering savings airlines airways railroad railway farms farm dairy poultry brewing
brewery winery cidery distillery kennels stables nurseries florists carpets textiles chemicals plastics tools tire tires
garage auto movers moving storage fitness gym salon nails cleaners cleaning laundry builders lumber sawmill mills mining
drilling oil gas energy steel cable cement brick tiles glass paper printing software technologies consulting holdings
brothers bros sons daughters stores supermarket supermarkets books toys furniture hardware shoes shipping shipyard
haulage freight transit transport express courier couriers buses taxis cabs hotel inn motel casino resort theatre cinema
studios radio elementary supply exports imports auction millwork boats security staffing realty properties union
department district authority office prison sheriff base mine
"""
_TRADES = frozenset(_TRADE_WORDS.split())
"""Last words of the names of companies and offices."""
_CAREFUL_TRADE_WORDS = """
department office base union supply oil gas glass paper security express transit transport mine tools cable storage
moving cleaning inn nails books auto steel energy savings district authority sheriff prison
"""
_CAREFUL_TRADES = frozenset(_CAREFUL_TRADE_WORDS.split())
"""Trades that also end headings and other phrases: they tell a company only beside a word of work."""
_START_WORDS = """
a the an his her their my our he she they we it pt patient pts this that who told former retired ex current works worked
working work employer employers employed employee employment occupation job wears between guarantor wife husband son
daughter owns runs quit left joined and or but at for from with by in on to when while since after before as if no not
was is got back exposed injured sent brought took spent draws drives hauls delivers stocks lifts lost started two three
long shift union coworkers coworker vaccinated disability please reports states says notes denies also insurance
medicare medicaid now currently previously formerly recently because boss manager supervisor colleague colleagues friend
sh
"""
_STARTS = frozenset(_START_WORDS.split())
"""Words that begin a clause and no employer."""
_SHORT_WORDS = """
ac adhd adl adls af afib aids ak aka aki als am ama ami ards asa asap asd av bid bipap bka bmi bmp bnp bp bph bpm bun ca
cabg cad cbc cc cdl ceo chf ckd cmp cna cns copd covid cp cpap cpr crp cs csf ct cva cvc cxr dbp dc dka dm dna dnr do
dob doe dot dvt ecg ecmo ed ef egd egfr ekg emg ems emt ent er esr esrd etoh eval fev fh fmla fvc gad gcs ged gerd gfr
gi gsw gu gyn hbv hcv hd hdl hf hiv hmo hpi hr hs htn hx ibd ibs icd icp icu id ii iii im inr iq iv ivf lbp ldl led lft
lfts loc lpn lue lle ltd lvef ma md mdd mi mr mra mri mrsa ms msw mva mvc na ng nhl nicu nkda no np npo nsaid nsaids nsr
nstemi ob ocd od ok or orif osa osha ot otc pa pacu pca pcn pco pcp pcr pe ped pft pfts ph phd picc picu pm pmh pna po
ppd ppe ppo prn psa psh pt ptsd ptt pvd qd qid qt ra rbc rehab rle rn rom ros rr rsv rta rue sah sbp sci sdh sh sle snf
sob ssi ssdi ssn ssri std stemi sti stis svt sw tb tbi tee tha tia tid tka tpn tsh tte tv tx uk uri us usa uti va vbg vp
vs vte wbc wc wnl xr ekgs phq pet moca mmse cage ncs abg vsd pfo avr mvr tavr lvad iabp ercp mrcp hida hipaa kub ccu
sicu micu
osh pod pod1 pow cbt dbt aa ppi
"""
_ABBREVIATIONS = frozenset(_SHORT_WORDS.split())
"""Abbreviations of notes that are no companies, in lower case."""

_PEOPLE = (
    r"employees?|workers?|staff|machinists?|mechanics?|drivers?|welders?|cashiers?|clerks?|technicians?"
    r"|engineers?|nurse"
    r"|doctor|physician|managers?|supervisors?|foreman|salesman|contractors?|trainees?|interns?|retirees?|bosses|boss"
    r"|co-?workers?|guards?|pilots?|cooks?|operators?|labou?rers?|executives?|accountants?|electricians?|janitors?"
)
_PREMISES = (
    r"plants?|factory|factories|warehouse|stores?|shop|mill|depot|office|offices|headquarters"
    r"|personnel|uniforms?|jobs?|shifts?|pension|insurance|benefits|plan|trucks?|van|badge|occupational health"
    r"|employment"
    r"|distribution cent(?:er|re)|assembly line|construction site|job site|site|loading dock|branch|health plan"
    r"|payslip"
)
_BELONGING = re.compile(
    rf"(?:['\u2019]s)?[ ](?:(?:night|day|evening|plant|company|occupational|human|main|local"
    rf"|former)[ ])?(?:{_PEOPLE}|{_PREMISES})"
    r"(?![^\W_])"
)
"""What belongs to a company, behind its name."""
_DOING = re.compile(
    r"[ ](?:(?:has|have|had|will|would|did|does|is|was|may|can|cannot|could|just|still|also|now|not|never"
    r"|recently)[ ]){0,3}"
    r"(?:(?:puts?|gave|give|given|moved|transferred|assigned|sent|lets?|keeps?|kept)[ ](?:him|her|them|me)"
    r"|hires?|hired|fires?"
    r"|fired|employs?|employed|laid (?:him|her|them)?|lays|insures?|hold (?:his|her|their|the)|closing|closed|closes"
    r"|shut(?:ting)? down|downsiz(?:ing|ed)|bankrupt|requires? (?:a|an|him|her|that|all|medical|clearance|proof)"
    r"|pays? (?:for|him|her|his)|wants? (?:a|him|her|to)|accommodat(?:es?|ed)|promoted|offers?|offered"
    r"|cut (?:his|her|their)|let go|HR|EAP|payroll|human resources)(?![^\W_])"
)
"""What companies do, behind their names."""
_BEFORE = re.compile(
    r"(?:(?<![^\W_])(?:[Qq]uit|[Jj]oined|[Oo]wns?|[Ff]ounded|[Rr]uns|[Ss]ued|[Ll]eaving|[Ff]ormer|[Ll]ong-?time"
    r"|[Ee]x-?"
    r"|(?:[Ff]ired|[Hh]ired|[Ii]nsured|[Ee]mployed) by|[Ll]aid off (?:by|from)|(?:[Hh]e|[Ss]he|[Tt]hey|[Pp]t"
    r"|patient|who|has|had) left"
    r"|(?:manager|temp|position|role|shift|shifts|lead|rep|clerk|store|desk|years?|yrs?|line cook|cook|guard"
    r"|plant|floor"
    r"|officer|nurse|driver|buyer|buys|assistant|partner|partners|operator|captain|crew|foreman|analyst"
    r"|assembler) (?:at|with|for|by|from)"
    r"|been (?:with|at)|(?:job|position|employment|career|contract|claim|employed|works"
    r"|worked)(?: [\w-]{1,12}){0,2} with"
    r"|(?:[Ii]nsurance|[Ii]nsured|[Cc]overage|[Cc]overed|[Bb]enefits)(?: [\w-]{1,12}){0,2} (?:through|from|by"
    r"|via|under|at)"
    r"|(?:[Dd]isability|FMLA|[Ll]eave|[Ww]ork) (?:paperwork|papers|forms?) (?:for|from|to|of)"
    r"|[Ee]mployer(?:'s)?(?: is| was)?[:,]?"
    r"|(?i:occupation|employment|job|work|workplace|place of work|trade):(?: [\w-]{1,15}){0,4},|(?:yrs|years)"
    r"|(?:[Dd]elivers?|[Dd]elivered|[Hh]auls?|[Dd]rives?|[Ff]lies|[Ss]ells?|[Ss]old|[Cc]leans?|[Pp]acks?"
    r"|[Ll]oads?|[Uu]nloads?|[Ss]tocks"
    r"|[Ii]nterned|[Vv]olunteers?|[Aa]pplied|[Cc]ommutes?|[Rr]etired|[Ww]elds?|[Cc]ooks|[Tt]ends bar|[Cc]ontracts?)"
    r"(?: [\w-]{1,12}){0,4} (?:at|for|from|with|to|by)))[ ](?:(?i:the|an?|another|his|her)[ ])?\Z"
)
"""Words directly before an employer, whatever the form of its name."""
_HIRED = re.compile(
    r"(?<![^\W_])(?i:works?|worked|working|jobs?|employed|employment|retired|retirement|career|supervisor|boss|hired"
    r"|medical leave|on leave|off work|(?:laid|lay) off|let go|owner|manager|overtime)"
    r"(?: (?!up|well|better|best|great)[\w-]{1,12}){0,3}"
    r" (?:at|for|with|by|from)[ ](?:(?i:the|an?|another|his|her)[ ])?\Z"
)
"""Words before an employer that no drug and no disease follows."""
_HURT = re.compile(
    r"(?<![^\W_])(?i:hurt|injured|cut|burned|crushed|strained|twisted|sprained|smashed|fell|slipped|tripped|hit"
    r"|lifting|loading|unloading|stacking|stocking|carrying|delivering|moving|pushing|pulling|climbing|driving)"
    r"(?: [\w-]{1,12}){0,5} at[ ](?:(?i:the|an?)[ ])?\Z"
)
"""An accident or a task before the place where it was."""
_VALUE = re.compile(r"[^\W\d_]{1,4}\d")
"""Vertebrae and laboratory values: `L4`, `HbA1c`."""
_PREPOSITION = re.compile(
    r"(?<![^\W_])(?i:at|by|for|from|through|to|of|between|via|under|the|an?|another|told|notified|called|and"
    r"|says|said|thinks|believes|feels|yrs|years)[ ]\Z"
    r"|[:,(/][ ]?\Z"
)
"""Words and signs before a name, in a clause about work."""
_WORK = re.compile(
    r"(?<![^\W_])(?i:work(?!-?ups?\b|[ ]up\b)|works(?![ ](?:well|better|best|only))|worked(?![ ](?:well|better"
    r"|best|up))|working(?=,|[ ](?:as|at|for|in|full|part|nights?|days?|overtime|again|there|two|the|a|an)\b)"
    r"|workplace|workers?|co-?workers?"
    r"|jobs?|employ(?:s|er|ers|ed|ee|ees|ment)|occupation(?:al)?|occ hx|boss|supervisors?|foreman|hir(?:ed|ing)|fired"
    r"|laid off|lay-?offs?|retire[ds]?|retirement|career|factory|warehouse|payroll|pension|colleagues?"
    r"|contractors?|apprentices?|trades(?:man|men)|foremen|plumbers?|carpenters?|electricians?|roofers?|painters?"
    r"|drivers?|truckers?|cooks?|chefs?|waiters?|waitress(?:es)?|bartenders?|janitors?|custodians?|housekeepers?"
    r"|secretar(?:y|ies)|receptionists?|accountants?|bookkeepers?|engineers?|programmers?|teachers?|guards?|miners?"
    r"|farmers?|loggers?|salesm[ae]n|dispatchers?|machinists?|welders?|mechanics?|cashiers?|clerks?|night shift"
    r"|shift lead|3rd shift|second shift|third shift|light duty"
    r"|break ?room|union rep|clocked|cdl|uniform|customers|company|fit-for-duty|fmla"
    r"|medical leave|sick leave|sick note|return-to-work|weeks off|days off|part[- ]time|full[- ]time"
    r"|unemployed|forklift|let go"
    r"|(?:note|letter|excuse|paperwork|papers|forms?|clearance|release) (?:for|from|to)"
    r"|lift(?:s|ed|ing)?|boxes|pallets|crates|deliveries|until cleared|until released|sent home from"
    r"|badge|assembly line|drug screen|audiogram|solvents|self-employed|business|salary|overtime"
    r"|workers'? comp(?:ensation)?)(?![^\W_])"
)
"""Words of a clause about work."""
_TREATMENT = re.compile(
    r"(?<![^\W_])(?i:switch(?:ed)?|changed|start(?:ed)?[ ]on|tak(?:es|ing)|treated|treatment|therapy"
    r"|allerg(?:ic|y)|dose|doses"
    r"|prescri(?:bed|ption)|taper(?:ed)?|infusions?|injections?|resumed?|continued?|increased?|decreased?"
    r"|stopped|added|mg"
    r"|diagnosed|diagnosis|history|due|because|despite|surgery|scan|results?|symptoms?|pain)(?![^\W_])"
)
"""Words before the names of drugs and diseases."""


def find_employers(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of employers. They may be people too."""
    for match in PHRASE.finditer(text):
        start, end = _trim(text, *match.span())
        if start < end and _is_employer(text, start, end):
            yield start, end


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Return start and end of a phrase without the words that begin its clause or the next one."""
    words = list(_WORD.finditer(text, start, end))
    while words and words[0][0].casefold() in _STARTS:
        del words[0]
    for number, word in enumerate(words):
        if word[0].casefold() in BRANDS:
            del words[number:]
            break
    is_legal = _LEGAL_END.search(text, start, end) is not None
    while words and not is_legal and _is_clinical_end(text, words[-1]):
        words.pop()
    return (words[0].start(), words[-1].end()) if words else (end, end)


def _is_clinical_end(text: str, word: re.Match[str]) -> bool:
    """Return whether a word is `and`, an abbreviation, a drug before its dose, or a word before `disease`."""
    following = _NEXT.match(text, word.end())
    is_before_noun = following is not None and following[1] in CLINICAL_NOUNS
    return (
        word[0].islower()
        or word[0].casefold().partition("-")[0] in _ABBREVIATIONS
        or is_before_noun
        or DOSE.match(text, word.end()) is not None
    )


def _is_employer(text: str, start: int, end: int) -> bool:
    phrase = text[start:end]
    words = [word.removesuffix("'s").removesuffix("\u2019s") for word in _WORD.findall(phrase)]
    plain = [word.casefold() for word in words]
    if _is_clinical(words, plain) and not _has_trade(plain):
        return False
    if _names_company(phrase, plain):
        return True
    before = _CLAUSE_START.split(text[max(0, start - _MOST_BESIDE) : start])[-1]
    after = _CLAUSE_START.split(text[end : end + _MOST_BESIDE])[0]
    is_first = not before.strip()
    is_word = len(words) == 1 and (plain[0] in ORDINARY_WORDS or is_frequent(plain[0])) and not words[0].isupper()
    if _DOING.match(text, end):
        return True
    if _BELONGING.match(text, end):
        return not (is_first and (is_word or _ends_as_drug(words[-1])))
    if _HIRED.search(before) or _BEFORE.search(before):
        return True
    if _HURT.search(before):
        return not (is_word or _VALUE.match(phrase) or _ends_as_drug(words[-1]))
    is_about_work = _WORK.search(before) is not None or _WORK.search(after) is not None
    is_weak = len(words) == 1 and (_TREATMENT.search(before) is not None or len(phrase) == 1)
    if is_weak or _ends_as_drug(words[-1]):
        return False
    return is_about_work and (_PREPOSITION.search(before) is not None or (len(words) > 1 and not is_first))


def _names_company(phrase: str, plain: Sequence[str]) -> bool:
    """Return whether the words of a phrase tell that it is a company."""
    if len(plain) == 1:
        return False
    if any(pattern.search(phrase) for pattern in (_LEGAL_END, _SIGNED, _PUBLIC_BODY)):
        return True
    return plain[-1] in _TRADES - _CAREFUL_TRADES and not ORDINARY_WORDS.issuperset(plain)


def _is_clinical(words: Sequence[str], plain: Sequence[str]) -> bool:
    """Return whether a phrase is a ward, disease, drug, abbreviation or number."""
    if any(word in BRANDS for word in plain) or not any(map(str.isalpha, "".join(words))):
        return True
    if len(plain) > 1 and plain[-1] in _TRADES:
        return all(word in WARDS or word in ORDINARY_WORDS for word in plain)
    if not WARDS.isdisjoint(plain) and (WARDS | ORDINARY_WORDS).issuperset(plain):
        return True
    return plain[-1] in CLINICAL_NOUNS or all(_is_clinical_word(word) for word in plain)


def _has_trade(plain: Sequence[str]) -> bool:
    """Return whether a trade is in the middle of a phrase, before a clinical noun: `Duke's Auto Body`."""
    return plain[-1] in CLINICAL_NOUNS and not BRANDS.intersection(plain) and not _TRADES.isdisjoint(plain[1:-1])


def _ends_as_drug(word: str) -> bool:
    """Return whether a rare word ends as drugs and diseases do. An employer may, if more than its clause tells it."""
    plain = word.casefold()
    if is_frequent(plain) or word.isupper() or _CAMEL.match(word) or _is_compound(plain):
        return False
    return CLINICAL_ENDING.search(plain) is not None


def _is_compound(plain: str) -> bool:
    """Return whether a word consists of two frequent words of four or more letters, as `silverline` does."""
    return any(is_frequent(plain[:place]) and is_frequent(plain[place:]) for place in range(4, len(plain) - 3))


def _is_clinical_word(word: str) -> bool:
    return (
        any(word in words for words in (WARDS, EPONYMS, CLINICAL_NOUNS))
        or word.partition("-")[0] in _ABBREVIATIONS
        or word.isdecimal()
    )
