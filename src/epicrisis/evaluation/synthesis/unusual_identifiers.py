"""Fictional notes with identifiers in forms that are unusual, from lists and sentences that no recognizer has seen.

Names, streets, towns, companies and sentences are divided into two halves. The recognizers were written while looking
at `development` only, so that `held-out` shows what they do with texts that nobody looked at. The forms of a kind are
the same in both. No real person is described.
"""

from __future__ import annotations

import calendar
import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from typing import Literal, TypeAlias, TypeVar

from epicrisis.deidentification.deidentifier import PatientIdentifiers
from epicrisis.deidentification.name_lists import read_name_lists
from epicrisis.deidentification.spans import IdentifierKind
from epicrisis.evaluation.synthesis.identified_notes import (
    IdentifiedNote,
    IdentifiedPatient,
    mark_identifier,
    read_marks,
)
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.unusual_words import (
    CLINICAL_SENTENCES,
    COMPANIES,
    FIRST_NAMES,
    LAST_NAMES,
    NAMES_OF_WORDS,
    STREETS,
    TOWNS,
)

Half: TypeAlias = Literal["development", "held-out"]
T = TypeVar("T")

_OWN = "own "
"""What the name of a kind begins with if the identifier is registered for the patient."""
NOT_REACHED = frozenset(("lower-case name on no list",))
"""Kinds that no rule finds, since nothing tells such a word from another. They are reported and not required."""


@dataclass(frozen=True, slots=True)
class UnusualKind:
    """A kind of unusual identifiers: how they are written, and in which sentences.

    In a form, `#` is a digit, `?` a capital letter, and a word in braces a part of a name, date or place. If it has two
    bars, only what is between them identifies somebody. In a sentence, `{x}` is the form.
    """

    name: str
    identifier: IdentifierKind
    forms: tuple[str, ...]
    sentences: tuple[str, ...]


_PERSON_SENTENCES = (
    "Overnight {x} slept poorly and asked for a second blanket.",
    "Per the chart, {x} has been on apixaban since the stroke.",
    "Wound looks clean; {x} was shown how to change the dressing.",
    "Transport brought {x} down to radiology at noon.",
    "We met {x} in the family room to go over the biopsy.",
    "The night float examined {x} after the fall.",
    "Left a voicemail for {x} regarding the potassium result.",
    "Medication list was reconciled with {x} before the transfer.",
    "It was explained to {x} that the drain stays for two days.",
    "Blood was drawn from {x} twice because the first tube clotted.",
    "Social history: married to {x}, two adult children.",
    "Next bed over, {x} had the same cough last week.",
    "Handover from {x}: pressors off at six, urine output fair.",
    "Ostomy teaching given to {x} by the wound team.",
    "Physiotherapy walked {x} to the end of the corridor.",
    "Records were requested by {x} for the disability claim.",
)
_LOWER_SENTENCES = (
    "pt {x} here for bp check, feels ok",
    "spoke w {x} re: inr, will recheck monday",
    "{x} no show today, left msg",
    "refill sent for {x}, metformin 500",
    "saw {x} in clinic, knee still swollen",
    "{x} c/o itching after the new cream",
    "labs back for {x}, potassium a bit low",
    "walked {x} to the bathroom, steady on feet",
    "mri for {x} moved to next week",
    "asked {x} to fast before the blood draw",
    "turned {x} q2h, skin intact",
    "fyi {x} wants the flu shot next time",
)
_DATE_SENTENCES = (
    "The catheter was changed {x} without trouble.",
    "Symptoms started {x}, a day after the long flight.",
    "Last menstrual period {x}.",
    "Seen again {x}; the rash had faded.",
    "Stent placed {x}, patent on the latest angiogram.",
    "Fell at home {x} and has limped ever since.",
    "Tetanus booster given {x}.",
    "Follow-up is booked for {x} with the same team.",
    "Her mother died {x} of a stroke.",
    "Chemotherapy began {x} and was well tolerated.",
    "Born {x} at term, breast fed.",
    "Biopsy result of {x}: no malignancy.",
    "Discharged {x} with oral antibiotics.",
    "First seizure {x}, none since.",
)
_WORKPLACE_SENTENCES = (
    "He drives a forklift for {x} and lifts up to 20 kg.",
    "She retired from {x} after thirty years in accounts.",
    "Employed by {x} as a night guard.",
    "Works at {x}, mostly standing.",
    "Occupation: welder, {x}.",
    "Exposed to solvents while at {x}, no mask worn.",
    "Employer {x} needs a fitness note.",
    "Laid off by {x} last spring, uninsured since.",
    "Back injury on the job with {x}.",
    "His employer, {x}, offers light duties.",
)

_KINDS = (
    UnusualKind("full name on no list", "name", ("{F} {L}",), _PERSON_SENTENCES),
    UnusualKind("name with middle initial", "name", ("{F} {J}. {L}", "{L}, {F} {J}."), _PERSON_SENTENCES),
    UnusualKind("lower-case listed name", "name", ("{f} {l}", "{f}"), _LOWER_SENTENCES),
    UnusualKind("lower-case name on no list", "name", ("{f} {l}",), _LOWER_SENTENCES),
    UnusualKind("name of words", "name", ("{W}",), _PERSON_SENTENCES),
    UnusualKind(
        "initial and surname",
        "name",
        ("{I}. {L}", "{I}.{J}. {L}", "{I}.{L}", "{I} {J} {L}", "{L}, {I}.", "Mr |{L}|", "Ms.|{L}|", "Dr.|{L}|"),
        _PERSON_SENTENCES,
    ),
    UnusualKind(
        "inflected name",
        "name",
        ("|{F} {L}|'s", "the |{L}|s'", "Mr. |{L}|'s", "|{F}|'s", "the |{L}|s"),
        (
            "The scan in {x} folder belongs to somebody else.",
            "We reviewed {x} medication list line by line.",
            "On the phone, {x} daughter described the fall.",
            "Please return {x} walker to the ward.",
            "At {x} request the television was moved.",
            "The form is with {x} sister for signature.",
            "Oxygen was found in {x} room, switched off.",
            "A copy went to {x} family practice.",
        ),
    ),
    UnusualKind(
        "capitals",
        "name",
        ("{FF} {LL}", "{LL}, {FF}", "{LL} {FF}", "{LL}^{FF}"),
        (
            "{x} / WARD 4 BED 12",
            "LABEL PRINTED FOR {x} AT TRIAGE",
            "PATIENT {x} ARRIVED BY AMBULANCE",
            "NOTIFY {x} OF ANY CHANGE",
            "ALLERGY BAND ON {x}: LATEX",
            "SAMPLE OF {x} HAEMOLYSED, REPEAT",
            "RE {x}: CT HEAD WITHOUT CONTRAST",
            "REPORT ON {x} FOLLOWS",
        ),
    ),
    UnusualKind(
        "names joined by signs",
        "name",
        ("{L}/{L2}", "{F}&{F2} {L}", "{L}_{F}", "{L}-{L2}", "{F}{L}", "{L}{F}"),
        (
            "Shared care by {x} continues until June.",
            "The sticker read {x} in faded ink.",
            "Consent was signed as {x} on the tablet.",
            "Bed board entry {x} is out of date.",
            "Rota: {x} covers the weekend.",
            "Tube labelled {x} was discarded.",
            "Search the archive under {x} for older films.",
            "Listed as {x} in the old system.",
        ),
    ),
    UnusualKind(
        "handle",
        "name",
        ("@{i}{l}", "@{f}{l}", "@{i}_{l}", "@{l}.{i}", "@{f}.{l}##", "@{F}{L}", "@{l}##", "u/{f}{l}"),
        (
            "Posts about her migraine on Instagram as {x}.",
            "Prefers messages to {x} on Telegram.",
            "Photos of the rash were sent by {x}.",
            "Reach him on Twitter: {x}.",
            "Shared the MRI online under {x}, advised against it.",
            "Support group contact is {x}.",
            "({x} wrote to the clinic account last night)",
            "Skype consult with {x} failed, no sound.",
            "Video call with {x} at ten.",
            "Ping {x} for the ECG tracing.",
        ),
    ),
    UnusualKind(
        "file name",
        "other-id",
        (
            "|{L}{F}|_discharge.pdf",
            "|{l}_{f}|.docx",
            "|{L}_{I}|_CT_chest.dcm",
            "|{F}-{L}|-{Y}.pdf",
            "scan_|{i}{l}|.jpg",
            "|{LL}{FF}|.TXT",
            "ECG |{L}|.pdf",
            "|{Y}{mm}{dd}_{L}|.pdf",
            "letter-|{l}-{f}|-final.doc",
            "|{L}.{F}|.xlsx",
            "|{i}{l}|_labs_v2.csv",
            "|{L}, {F}| - consent.pdf",
        ),
        (
            "Scanned to {x} in the shared drive.",
            "See attachment {x} for the full report.",
            "Uploaded: {x}",
            "The referral ({x}) was unreadable.",
            "Old films are in {x}, imported yesterday.",
            "Dictation saved as {x} and sent for typing.",
            "Please sign {x} before Friday.",
            "File {x} could not be opened.",
        ),
    ),
    UnusualKind(
        "path",
        "other-id",
        (
            "/home/|{i}{l}|/notes/ct.txt",
            "C:\\Users\\|{i}{l}|\\Desktop\\labs",
            "\\\\ward3\\patients\\|{L}_{F}|",
            "/data/patients/|{L}|/{Y}",
            "~/|{l}|/films",
            "S:\\Clinic\\|{L}, {F}|\\letters",
            "records/|{l}_{f}|/ekg.xml",
            "/mnt/pacs/|{LL}^{FF}|/series2",
        ),
        (
            "Images were copied to {x} by the tech.",
            "Export lies under {x}",
            "Folder {x} holds the older letters.",
            "The log shows a read of {x} at 03:12.",
            "Backup of {x} finished with errors.",
            "Old chart moved into {x}.",
            "Pulled from {x} this morning.",
            "Cannot write to {x}, disk is full.",
        ),
    ),
    UnusualKind(
        "date in words",
        "date",
        (
            "{Month} the {ordinal}",
            "the |{ordinal} of {Month}|",
            "{Month} {ordinal}",
            "{Month} the {ordinal}, {Y}",
            "{ordinal} of {Month} {Y}",
            "the |{ordinal} of {Month}, {yearwords}|",
            "{Month} {ordinal}, {yearwords}",
            "{month} the {ordinal}",
            "the |{ordinal} day of {Month}|",
        ),
        _DATE_SENTENCES,
    ),
    UnusualKind(
        "month in roman digits",
        "date",
        ("{d}.{roman}.{Y}", "{d}-{ROMAN}-{yy}", "{d}/{ROMAN}/{Y}", "{dd}. {ROMAN}. {Y}"),
        _DATE_SENTENCES,
    ),
    UnusualKind(
        "short year",
        "date",
        ("'{yy}-{mm}", "{Mon} '{yy}", "{m}/'{yy}", "{d} {Mon} '{yy}", "{mm}-'{yy}", "{Month} of '{yy}"),
        _DATE_SENTENCES,
    ),
    UnusualKind(
        "date with time",
        "date",
        (
            "|{Y}{mm}{dd}|T##:15",
            "|{Y}{mm}{dd}|T081500Z",
            "|{Y}-{mm}-{dd}|T08:15:00Z",
            "|{Y}{mm}{dd}|0815",
            "|{Y}-{mm}-{dd}|_0815",
            "|{m}/{d}/{Y}|@0815",
            "|{dd}{MON}{yy}|:08:15",
            "|{Y}{mm}{dd}|-0815",
            "{Y}{mm}{dd}",
        ),
        _DATE_SENTENCES,
    ),
    UnusualKind(
        "abbreviated day and month",
        "date",
        (
            "{Mon}-{dth}",
            "{dth}-{Mon}",
            "{Mon}.{d}",
            "{Mon}{dd}",
            "{dd}{Mon}",
            "{Mon} {dth}",
            "{dth} {Mon} {yy}",
            "{Mon}/{d}/{Y}",
            "{Mon}_{dd}_{Y}",
            "{Y}{Mon}{dd}",
            "{Y} {Mon} {d}",
            "{Mon}-{d}-{Y}",
        ),
        _DATE_SENTENCES,
    ),
    UnusualKind(
        "week",
        "date",
        (
            "{Y}-W{ww}",
            "week |{w} of {Y}|",
            "W|{ww}/{Y}|",
            "wk |{w} {Y}|",
            "{Y}W{ww}",
            "calendar week |{w}, {Y}|",
            "KW |{w}/{Y}|",
            "{Y}-W{ww}-3",
        ),
        _DATE_SENTENCES,
    ),
    UnusualKind("day of the year", "date", ("{Y}-{ddd}", "day |{ddd} of {Y}|", "{Y}/{ddd}"), _DATE_SENTENCES),
    UnusualKind(
        "numbers with blanks or other signs",
        "date",
        (
            "{dd} {mm} {Y}",
            "{m} / {d} / {Y}",
            "{dd}·{mm}·{Y}",
            "{d}.{m}.{yy}",
            "{Y}.{mm}.{dd}",
            "{dd}_{mm}_{Y}",
            "{m}-{d}-'{yy}",
            "{mm}\u2013{dd}\u2013{Y}",
            "{mm}\\{dd}\\{Y}",
            "{d}. {m}. {Y}",
        ),
        _DATE_SENTENCES,
    ),
    UnusualKind("holiday", "date", ("{Holiday} {Y}", "|{Holiday}| of {Y}", "{Holiday}"), _DATE_SENTENCES),
    UnusualKind(
        "zip code",
        "place",
        (
            "|#####|-",
            "#####-####",
            "{Town} #####",
            "{Town}, #####",
            "OR |#####|",
            "Oregon |#####-####|",
            "ZIP: |#####|",
            "zip |#####|",
            "|#####|, USA",
            "postcode |{UK}|",
        ),
        (
            "Mail to {x} came back twice.",
            "Address on file ends in {x}",
            "Nearest pharmacy: {x}.",
            "Her area ({x}) has no home nursing.",
            "Moved, now {x}, no phone yet.",
            "Delivery of oxygen to {x} arranged.",
            "Registered at {x} until the spring.",
            "Resident of {x}.",
        ),
    ),
    UnusualKind(
        "street",
        "place",
        (
            "#### {Street} Hollow",
            "Flat #, |2# {Street} Mews|",
            "## {Street} Street Apt #?",
            "{Street}strasse 2#",
            "4#-1# {Street} Avenue",
            "### N {Street} Rd",
            "## {Street} Crossing",
            "{Street} Lane ##",
            "#### SW {Street} Loop",
            "corner of |{Street} St and {Street2} Ave|",
            "Rue de {Street} 1#",
        ),
        (
            "Found down near {x} by a neighbour.",
            "Home visit: {x}, ring twice.",
            "Shares a house at {x} with two students.",
            "Ambulance picked him up at {x}.",
            "Letters go to {x} from now on.",
            "Lives on {x}, ground floor.",
            "Walks daily from {x} to the river.",
            "Delivery address {x}.",
        ),
    ),
    UnusualKind(
        "town",
        "place",
        ("{Town}",),
        (
            "Drove in from {x} this morning with chest tightness.",
            "Her son farms outside {x} and visits monthly.",
            "Grew up in {x}, smoked from sixteen.",
            "Was treated for TB in {x} as a child.",
            "Recently back from {x} with loose stools.",
            "The dentist in {x} had noticed the ulcer.",
            "Moved to {x} after the divorce.",
            "Prefers follow-up near {x} because of the bus.",
            "Transferred by helicopter from {x}.",
            "Keeps bees near {x}.",
        ),
    ),
    UnusualKind("employer", "place", ("{Company}",), _WORKPLACE_SENTENCES),
    UnusualKind(
        "coordinates",
        "place",
        ("45.####, -122.####", "45.####\u00b0 N, 122.####\u00b0 W", "45\u00b02#'1#\"N 122\u00b04#'1#\"W"),
        (
            "Found unresponsive at {x} by hikers.",
            "Rescue helicopter landed at {x}.",
            "Phone location {x} was given to the police.",
            "Dropped pin: {x}",
            "Camp at {x}, tick bite there.",
            "Last seen near {x} at dusk.",
        ),
    ),
    UnusualKind(
        "telephone",
        "phone",
        (
            "503.2##.####",
            "(503)2######",
            "503 2## ####",
            "50323#####",
            "+44 20 7946 0###",
            "+15032######",
            "503-2##-####x12",
            "1-800-2##-####",
            "503/2##-####",
            "tel:|+1-503-2##-####|",
            "503\u20132##\u2013####",
            "503\u00b72##\u00b7####",
            "[503] 2##-####",
            "503- 2## - ####",
            "2##-####",
            "0041 44 2## ## ##",
            "+49 (0)30 2######",
            "01632 960###",
            "503.2##.#### ext 4#",
            "(503) 2##.####",
        ),
        (
            "Sister can be called at {x} day or night.",
            "Best number is {x}.",
            "Ring {x} before visiting.",
            "{x} (neighbour, has a key)",
            "Text results to {x} please.",
            "Answering machine at {x} is full.",
            "New mobile {x}, old one lost.",
            "Pharmacy line {x} closes at six.",
            "Voicemail left at {x}.",
            "Contact on file: {x}",
        ),
    ),
    UnusualKind(
        "fax",
        "fax",
        ("503.2##.####", "(503)2##-####", "50323#####", "+1 503 2## ####", "2##-####"),
        (
            "Report faxed to {x} at noon.",
            "FAX {x}, attention records.",
            "Fax no. {x} is busy.",
            "f: {x}",
            "Send by telefax to {x}.",
            "Facsimile {x} confirmed.",
        ),
    ),
    UnusualKind(
        "e-mail",
        "email",
        (
            "{f}.{l}@mailbox.example.org",
            "{i}{l} [at] clinicmail [dot] com",
            "{F}.{L}@Ward.Example.COM",
            "{i}.{l} at oakpost dot org",
            "{l}_{f}+lab@example.co.uk",
            "mailto:|{f}{l}@example.net|",
            "<|{i}{l}@example.com|>",
            "{i}{l}(at)example(dot)com",
            "{i}{l}@wardmail",
            "{f}{l}## AT gmail DOT com",
            "{f}-{l}@sub.mail.example.de",
            "{l}{i} @ example . com",
            "{f}.{l}@example\u2024com",
        ),
        (
            "Summary was sent to {x} at her wish.",
            "Write to {x}.",
            "Portal login {x} is locked.",
            "Reply came from {x} overnight.",
            "Contact: {x}, no telephone.",
            "cc {x}",
            "Invoice to {x} bounced.",
            "He gave {x} as the address for results.",
        ),
    ),
    UnusualKind(
        "web address",
        "url",
        (
            "https://portal.wardnet.health/p/{l}",
            "hxxp://clinic.example/{l}",
            "linkedin.com/in/{f}{l}",
            "www.{f}{l}.de",
            "{l}-family.co.uk/tree",
            "facebook.com/{f}.{l}",
            "pacs.local/{l}/ct",
            "http://10.2.#.1#/{l}",
            "ftp://files.example.org/{l}.zip",
            "{l}.blog",
            "intranet/patients/{l}",
            "HTTPS://WWW.{LL}.CH",
            "goo.gl/{L}##",
            "youtu.be/x{l}",
            "https://example.org/?pt={f}+{l}",
            "{f}{l}.substack.com",
        ),
        (
            "His diary is at {x} for anyone to read.",
            "Images: {x}",
            "Opened {x} on the ward PC.",
            "Crowdfunding page {x} mentions the diagnosis.",
            "See {x}, accessed in clinic.",
            "Link {x} has expired.",
            "She blogs at {x}.",
            "Result posted on {x} by the lab.",
        ),
    ),
    UnusualKind(
        "network address",
        "ip",
        (
            "10.2#.1#.4#",
            "|10.2#.1#.4#|:8080",
            "fe80::2##:5eff:fe9#:1#",
            "|192.168.1.1#|/24",
            "00:1B:44:11:3A:#?",
            "001b.4411.3ab#",
        ),
        (
            "Pump connected from {x} last night.",
            "Telehealth session, client {x}.",
            "Monitor at {x} lost the signal.",
            "Upload from {x} refused.",
            "Login from {x} is not ours.",
            "Gateway {x} restarted.",
        ),
    ),
    UnusualKind(
        "social security number",
        "ssn",
        (
            "4## 12 3###",
            "4##-12-3###",
            "4##123###",
            "4##.12.3###",
            "xxx-xx-|6###|",
            "***-**-|6###|",
            "4##\u201312\u20133###",
        ),
        (
            "SSN {x} on the form.",
            "Social: {x}",
            "SS# {x}",
            "Soc Sec No {x} was corrected.",
            "Insured under social security {x}.",
            "ssn ({x})",
        ),
    ),
    UnusualKind(
        "record number",
        "record-number",
        (
            "4########?",
            "?-4#######",
            "4#.##.##.##",
            "?4######",
            "##-##-##",
            "#4####/2",
            "4###-####",
            "MR4######",
            "{LL3}4#####",
            "4### ####",
            "4#######",
        ),
        (
            "MRN {x} pulled from the archive.",
            "Chart {x} is with coding.",
            "mrn#{x}, room 4",
            "Hosp no {x} on the wristband.",
            "UR: {x}",
            "Unit no. {x}",
            "Encounter {x} closed.",
            "Medical record {x} was merged.",
            "Visit # {x}",
            "Case {x} discussed at rounds.",
        ),
    ),
    UnusualKind(
        "health plan",
        "health-plan",
        ("1EG4-TE5-MK7#", "1EG4TE5MK##", "XY?12######", "W12## #####-01", "?## ### ###"),
        (
            "Medicare {x} active.",
            "Policy {x} lapsed in spring.",
            "Member ID {x}, group pending.",
            "Insurance no {x} verified.",
            "Subscriber {x}.",
            "Medicaid {x} approved.",
        ),
    ),
    UnusualKind(
        "account",
        "account",
        (
            "00##-7##",
            "DE89 3704 0044 0532 01## ##",
            "GB29NWBK601613319268##",
            "4111 1111 1111 1111",
            "ending |4###|",
            "?12-####-##",
        ),
        (
            "Account {x} was charged.",
            "Acct {x} in arrears.",
            "Pays from account {x}.",
            "Billing account {x}",
            "Bank account {x} for the refund.",
            "Guarantor acct no {x}.",
        ),
    ),
    UnusualKind(
        "licence",
        "licence",
        ("OR 12#####", "12####RN", "B?12345##", "C03X12###", "D###-####-####", "S 12# 45# 78"),
        (
            "Driver's license {x} presented.",
            "DL {x} as proof of identity.",
            "Passport {x} copied at the desk.",
            "Licence no. {x} expires soon.",
            "License # {x}",
            "Passport no {x}.",
        ),
    ),
    UnusualKind(
        "licence plate",
        "vehicle",
        ("8## K?M", "8##-K?M", "K?M-8###", "LB5# XK?", "KM? 8##", "8KM?2##", "B-K? 18##", "?KM 8##?"),
        (
            "Arrived in a grey Subaru, plate {x}.",
            "License plate {x} noted by security.",
            "Parking permit for {x}, a blue Honda.",
            "Hit by a van, registration {x}.",
            "Car ({x}) still in the ambulance bay.",
            "Reg. {x}, white Transit.",
            "His pickup {x} was towed.",
            "Tag number {x} given to police.",
            "Number plate {x}.",
            "The Toyota with plates {x} blocks the ramp.",
        ),
    ),
    UnusualKind(
        "vehicle number",
        "vehicle",
        ("1HGCM826#3A00####", "1hgcm826#3a00####", "WDB 202 018 1F 68####", "1HGCM-826#3-A00####", "ending |4###|"),
        (
            "VIN {x} from the crash report.",
            "Vehicle identification number {x}.",
            "Chassis no. {x}",
            "VIN: {x}.",
            "vin={x}",
            "Airbag recall, VIN {x}.",
        ),
    ),
    UnusualKind(
        "device",
        "device",
        (
            "4F-2###-K?",
            "PJN48####?",
            "#A33-1##",
            "0023####",
            "?X-90#",
            "(01)0064316900722#(21)PJN48####",
            "35-2099##-17614#-1",
            "8#K2-77?P-0#",
            "3.1-4##-B?",
        ),
        (
            "Pump S/N {x} replaced.",
            "ICD serial no {x} checked, battery fine.",
            "Serial {x}, implanted left.",
            "SN: {x}",
            "Glucose sensor (serial number {x}) fell off.",
            "Implant lot {x} recalled.",
            "Device ID {x} paired.",
            "Ventilator #{x} in use.",
            "Pacemaker serial: {x}.",
            "Stimulator, ser. no. {x}, off.",
            "UDI {x}",
            "Hearing aid s/n {x} lost.",
        ),
    ),
    UnusualKind(
        "other number",
        "other-id",
        ("PX-00##", "S19-12###", "44-10##", "NCT0#######", "TKT#####", "#####"),
        (
            "Study ID {x} randomised.",
            "Badge {x} at the door.",
            "Accession {x} under review.",
            "Specimen {x} in formalin.",
            "Employee number {x}.",
            "Order no. {x} cancelled.",
            "Ticket {x} opened with the help desk.",
            "Pager {x} for results.",
        ),
    ),
    UnusualKind(
        "great age",
        "age",
        ("ninety-three", "101", "93", "ninety four", "a hundred and two", "one hundred and one"),
        (
            "Aged {x}, lives with her niece.",
            "A {x}-year-old gardener with a hip fracture.",
            "Turned {x} last month.",
            "He is {x} years of age.",
            "At {x} y.o. she still drives.",
            "Patient is {x} yrs old.",
        ),
    ),
    UnusualKind(
        "great age in other words",
        "age",
        ("|93|F", "|104|yo", "nonagenarian", "centenarian", "in her |nineties|", "in his mid-|90s|", "age: |97|"),
        (
            "Frail, {x}, from assisted living.",
            "Admitted last night, {x}, after a syncope.",
            "Lives alone, {x}, uses a rollator.",
            "Stable, {x}, for discharge.",
        ),
    ),
    UnusualKind(
        "own name glued or in a file",
        "name",
        (
            "|{L}{F}|_discharge.pdf",
            "|{l}{f}|.docx",
            "@|{i}{l}|",
            "@|{l}{i}|",
            "C:\\Users\\|{i}{l}|",
            "{L}{F}",
            "{i}{l}",
            "|{l}|##",
            "xx|{l}|xx",
            "|{F}{L}|ct",
            "|{LL}|{Y}",
            "|{l}{i}|.png",
            "{F}_{L}",
            "pt|{L}|",
            "{f}{l}",
        ),
        (
            "Saved as {x} on the ward PC.",
            "Look up {x} in the archive.",
            "Entry {x} was edited at night.",
            "Scan: {x}",
            "Login {x} expired",
            "Search for {x} gave two hits.",
            "Sticker said {x} in pencil.",
            "Label {x} torn.",
        ),
    ),
    UnusualKind(
        "own name in any form",
        "name",
        (
            "{F} {L}",
            "{f} {l}",
            "{FF} {LL}",
            "|{L}|'s",
            "the |{L}|s'",
            "|{L}|s",
            "{I}. {L}",
            "{I}.{L}",
            "{L} {I}",
            "{L}, {I}.",
            "{I} {L}",
            "{plain}",
            "{plain_lower}",
            "{german}",
            "Mrs.|{L}|",
            "{L}/{F}",
            "{l}",
            "{f}",
            "{LL}",
            "|{F}|'s",
            "|{l}|s",
            "{german_upper}",
            "|{f}|'s",
            "|{LL}|'S",
            "{L}-{L2}",
            "Fr. |{L}|",
        ),
        (*_PERSON_SENTENCES, *_LOWER_SENTENCES),
    ),
    UnusualKind(
        "own number",
        "record-number",
        (
            "|{N}|A",
            "A|{N}|",
            "{N}",
            "MR|{N}|",
            "{N1}-{N2}",
            "{N1} {N2}",
            "|{N}|_ct",
            "000|{N}|",
            "x|{N}|x",
            "|{N}|.pdf",
            "|{N}|AB",
            "id|{N}|",
            "{N1}.{N2}",
            "{N1}/{N2}",
        ),
        (
            "Wristband {x} checked twice.",
            "Look up {x} in the archive.",
            "Saved under {x} by the tech.",
            "Bar code {x} unreadable.",
            "Tube {x} sent",
            "see {x} for older films",
            "({x}) was on the envelope.",
            "Typed {x}, nothing found.",
        ),
    ),
)
KINDS = {kind.name: kind for kind in _KINDS}
_ORDINAL_WORDS = """
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth twenty-fifth
twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first
"""
_ORDINALS = _ORDINAL_WORDS.split()
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_YEAR_WORDS = {
    2015: "twenty fifteen",
    2016: "two thousand sixteen",
    2017: "two thousand and seventeen",
    2018: "twenty eighteen",
    2019: "two thousand nineteen",
    2020: "twenty twenty",
    2021: "twenty twenty-one",
    2022: "two thousand twenty-two",
}
_HOLIDAYS = (
    "Christmas Day",
    "Thanksgiving",
    "New Year's Eve",
    "Easter Sunday",
    "the Fourth of July",
    "Labor Day",
    "Christmas Eve",
    "Halloween",
)
_TRANSLITERATED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "ø": "oe", "å": "aa"})


def draw_unusual_patient(number: int, seed: int, half: Half) -> IdentifiedPatient:
    """Return a registered patient with one note for each kind of identifier. The same arguments give the same notes."""
    draws = Draws("unusual", seed, number, half)
    writer = _UnusualWriter(draws, half)
    notes = tuple(writer.write(kind) for kind in KINDS.values())
    own = writer.patient
    name = draws.pick((f"{own.last}, {own.first}", f"{own.first} {own.last}"))
    return IdentifiedPatient(PatientIdentifiers(f"P-{writer.number[::-1]}", (name,), (writer.number,)), notes)


def fold_accents(name: str) -> str:
    """Return the name without accents: `Müller` becomes `Muller`."""
    letters = unicodedata.normalize("NFKD", name.replace("ß", "ss").replace("ø", "o"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def draw_clinical_sentences(half: Half) -> Sequence[str]:
    """Return sentences without an identifier: drugs, eponyms, scores, measurements."""
    return take_half(CLINICAL_SENTENCES, half)


@cache
def take_half(items: tuple[T, ...], half: Half) -> tuple[T, ...]:
    """Return every other item, in the order of their hashes."""
    ordered = sorted(items, key=lambda item: hashlib.sha256(str(item).encode()).digest())
    return tuple(ordered[half == "held-out" :: 2])


@dataclass(frozen=True, slots=True)
class _UnusualPerson:
    first: str
    last: str


class _UnusualWriter:
    """Writes notes of one patient, each with one unusual identifier."""

    def __init__(self, draws: Draws, half: Half) -> None:
        self._draws = draws
        self._half: Half = half
        self._firsts, self._lasts = take_half(FIRST_NAMES, half), take_half(LAST_NAMES, half)
        self.patient = self._draw_person(None)
        self.number = str(draws.integer(10_000_000, 99_999_999))

    def write(self, kind: UnusualKind) -> IdentifiedNote:
        """Return a note with an identifier of this kind between two sentences without one."""
        draws = self._draws
        filled = self._fill(draws.pick(kind.forms), self._choose_person(kind.name))
        before, identifier, after = filled.split("|") if "|" in filled else ("", filled, "")
        sentence = draws.pick(take_half(kind.sentences, self._half))
        form = f"{before}{mark_identifier(kind.identifier, kind.name, identifier)}{after}"
        marked = sentence.replace("{x}", form)
        before, after = draws.sample(draw_clinical_sentences(self._half), 2)
        return read_marks(draws.pick(("\n", " ")).join((before, marked, after)))

    def _choose_person(self, kind: str) -> _UnusualPerson:
        if kind.startswith(_OWN):
            return self.patient
        is_listed = {"lower-case listed name": True, "lower-case name on no list": False, "full name on no list": False}
        return self._draw_person(is_listed.get(kind))

    def _draw_person(self, is_listed: bool | None) -> _UnusualPerson:
        """Return a person. True: both names are in a list of the recognizer; False: none; None: any."""
        lists = read_name_lists()
        listed = lists.first | lists.last
        firsts = [name for name in self._firsts if is_listed in (None, name.casefold() in listed)]
        lasts = [name for name in self._lasts if is_listed in (None, name.casefold() in listed)]
        return _UnusualPerson(self._draws.pick(firsts), self._draws.pick(lasts))

    def _fill(self, form: str, person: _UnusualPerson) -> str:
        parts = {**self._list_name_parts(person), **self._list_date_parts(), **self._list_place_parts()}
        text = re.sub(r"\{(\w+)\}", lambda match: f"\0{match[1]}\0", form)
        pieces = text.split("\0")
        for place in range(0, len(pieces), 2):
            pieces[place] = re.sub(r"#", lambda _: str(self._draws.integer(0, 9)), pieces[place])
            pieces[place] = re.sub(r"\?(?!pt=)", lambda _: self._draws.pick("ABCDEFGHJKLNPRSTVXYZ"), pieces[place])
        for place in range(1, len(pieces), 2):
            pieces[place] = parts[pieces[place]]
        return "".join(pieces)

    def _list_name_parts(self, person: _UnusualPerson) -> dict[str, str]:
        first, last = person.first, person.last
        other = self._draw_person(None)
        german = last.translate(_TRANSLITERATED)
        plain = fold_accents(last)
        number = self.number
        return {
            "F": first,
            "L": last,
            "f": first.lower(),
            "l": last.lower(),
            "FF": first.upper(),
            "LL": last.upper(),
            "I": first[0],
            "J": last[0],
            "i": first[0].lower(),
            "F2": other.first,
            "L2": other.last,
            "LL3": last[:3].upper(),
            "W": self._draws.pick(take_half(NAMES_OF_WORDS, self._half)),
            "plain": plain,
            "plain_lower": plain.lower(),
            "german": german,
            "german_upper": german.upper(),
            "N": number,
            "N1": number[:4],
            "N2": number[4:],
        }

    def _list_date_parts(self) -> dict[str, str]:
        draws = self._draws
        day = date(2015, 1, 1) + timedelta(days=draws.integer(0, 2900))
        month = calendar.month_name[day.month]
        week = day.isocalendar()
        suffix = "th" if 10 < day.day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
        return {
            "d": str(day.day),
            "dd": f"{day:%d}",
            "dth": f"{day.day}{suffix}",
            "ddd": f"{day:%j}",
            "m": str(day.month),
            "mm": f"{day:%m}",
            "Mon": month[:3],
            "MON": month[:3].upper(),
            "Month": month,
            "month": month.lower(),
            "roman": _ROMAN[day.month - 1],
            "ROMAN": _ROMAN[day.month - 1].upper(),
            "Y": str(day.year),
            "yy": f"{day:%y}",
            "yearwords": _YEAR_WORDS[day.year],
            "ordinal": _ORDINALS[day.day - 1],
            "w": str(week.week),
            "ww": f"{week.week:02d}",
            "Holiday": draws.pick(_HOLIDAYS),
        }

    def _list_place_parts(self) -> dict[str, str]:
        draws, half = self._draws, self._half
        streets = draws.sample(take_half(STREETS, half), 2)
        return {
            "Street": streets[0],
            "Street2": streets[1],
            "Town": draws.pick(take_half(TOWNS, half)),
            "Company": draws.pick(take_half(COMPANIES, half)),
            "UK": draws.pick(("SW1 4QT", "NE7 2AB", "B3 9XD", "LS6 1AB", "SW9 8XD", "NE2 5QT")),
        }
