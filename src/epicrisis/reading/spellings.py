"""The British and American spellings of a word.

list_spellings("haemoglobin")   # ["haemoglobin", "hemoglobin"]
"""

from __future__ import annotations

import re

_MIN_LETTERS = 5
_PAIRS = (
    ("haem", "hem", r"(?<!c)hem(?=[aoi][a-z]{0,8}(?:glob|ly|to|stas|cyt|rrh|dia|phil|part|chrom|peri|dyn)|orr|oid)"),
    ("aemi", "emi", r"(?<!pand)(?<!epid)(?<!end)(?<!acad)(?<!syst)(?<!pol)(?<!rac)(?<=[a-z]{2})emi(?=as?$|cs?$)"),
    ("anaem", "anem", r"\banem(?!on)"),
    ("aesth", "esth", r"(?<=an)esth|(?<=ar)esth|(?<=yn)esth|(?<=in)esth|(?<=ys)esth|(?<=er)esth|\besth"),
    ("paed", "ped", r"\bped(?=iatr)|(?<=tho)ped"),
    ("gynaec", "gynec", r"gynec"),
    ("caec", "cec", r"\bcec(?=[aou])"),
    ("caesar", "cesar", r"\bcesar"),
    ("faec", "fec", r"\bfec(?=[aeo])"),
    ("aetio", "etio", r"\betio"),
    ("naev", "nev", r"\bnev(?=us|i$|o)"),
    ("palaeo", "paleo", r"paleo"),
    ("leuco", "leuko", r"\bleuko(?!e)"),
    ("leukaem", "leukem", r"leukem"),
    ("oedem", "edem", r"edem"),
    ("oesoph", "esoph", r"esoph"),
    ("oestr", "estr", r"\bestr(?=[aiou]|ad)|(?<=anti)estr|(?<=pro)estr"),
    ("foet", "fet", r"\bfet(?=us|al|o)"),
    ("rrhoe", "rrhe", r"rrhe"),
    ("coeli", "celi", r"\bceli(?=ac|o)"),
    ("amoeb", "ameb", r"ameb"),
    ("homoeo", "homeo", r"\bhomeo"),
    ("pnoea", "pnea", r"pnea"),
    ("manoeuv", "maneuv", r"maneuv"),
    ("sulph", "sulf", r"sulf"),
    ("lyse", "lyze", r"(?<=[arodt])lyze"),
    ("lysing", "lyzing", r"lyzing"),
    ("tumour", "tumor", r"tumor(?!i)"),
    ("behaviour", "behavior", r"behavior"),
    ("colour", "color", r"\bcolor(?!e|ad)"),
    ("labour", "labor", r"\blabor(?!at|i)"),
    ("humour", "humor", r"\bhumor(?!al)"),
    ("odour", "odor", r"\bodor(?!i|a)"),
    ("favour", "favor", r"favor"),
    ("flavour", "flavor", r"flavor"),
    ("neighbour", "neighbor", r"neighbor"),
    ("vapour", "vapor", r"\bvapor(?!i)"),
    ("honour", "honor", r"\bhonor(?!ar)"),
    ("rumour", "rumor", r"\brumor"),
    ("armour", "armor", r"\barmor"),
    ("centre", "center", r"center(?=s?$)"),
    ("fibre", "fiber", r"fiber"),
    ("titre", "titer", r"titer"),
    ("metre", "meter", r"(?<=kilo)meter|(?<=centi)meter|(?<=milli)meter|(?<=micro)meter|(?<=nano)meter"),
    ("litre", "liter", r"liter(?=s?$)"),
    ("calibre", "caliber", r"\bcaliber"),
    ("goitre", "goiter", r"\bgoiter"),
    ("theatre", "theater", r"\btheater"),
    ("ageing", "aging", r"\baging"),
    ("programme", "program", r"\bprogram(?=s?$)"),
    ("mould", "mold", r"\bmold"),
    ("aluminium", "aluminum", r"\baluminum"),
    ("defence", "defense", r"\bdefense"),
    ("dialogue", "dialog", r"\bdialog(?=s?$)"),
    ("counsell", "counsel", r"\bcounsel(?=ing|ed|or)"),
    ("labell", "label", r"label(?=ing|ed)"),
    ("modell", "model", r"model(?=ing|ed)"),
    ("travell", "travel", r"\btravel(?=ing|ed|er)"),
    ("signall", "signal", r"signal(?=ing|ed)"),
    ("channell", "channel", r"channel(?=ing|ed)"),
    ("tunnell", "tunnel", r"\btunnel(?=ing|ed)"),
)
"""A British part of words, the American one, and the pattern of the American one where the British is written so."""
_AMERICAN = {british: american for british, american, _ in _PAIRS}
_BRITISH_PART = re.compile("|".join(_AMERICAN))
_TO_BRITISH = tuple((re.compile(pattern), british) for british, _, pattern in _PAIRS)
_IS = re.compile(r"is(?=(?:e|ed|es|er|ers|ing|ation|ations|ational)$)")
_IZ = re.compile(r"iz(?=(?:e|ed|es|er|ers|ing|ation|ations|ational)$)")
_ALWAYS_IS = re.compile(
    r"^(?:advert|adv|ar|br[au]|chast|circumc|comprom|compr|conc|cru|dem|desp|dev|disgu|enterpr|exc|exerc|expert|franch|"
    r"imprec|improv|inc|ma|merchand|no|otherw|parad|po|pra|prec|prem|prom|ra|rev|r|superv|surpr|telev|tre|v|w|d|l)is"
    r"(?:e|ed|es|er|ers|ing)$"
)


def list_spellings(word: str) -> list[str]:
    """Return a word as it is written, and its other spellings in lower case: American, British, British with `iz`."""
    lower = word.lower()
    if len(lower) < _MIN_LETTERS:
        return [word]
    american = spell_american(lower)
    british = american
    for pattern, part in _TO_BRITISH:
        british = pattern.sub(part, british)
    others = dict.fromkeys((american, _IZ.sub("is", british), british))
    return [word, *(other for other in others if other != lower)]


def spell_american(word: str) -> str:
    """Return a word in lower case in its American spelling."""
    american = _BRITISH_PART.sub(lambda match: _AMERICAN[match[0]], word)
    return american if _ALWAYS_IS.search(american) else _IS.sub("iz", american)
