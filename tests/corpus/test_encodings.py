"""Texts in other encodings than UTF-8: told, reported, and never changed by replacement characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.encodings import ENCODED_TWICE, decode_text
from epicrisis.corpus.base.reader_base import FileRemark, Skipped
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_tables import NoteColumns

TEXTS = {
    "en": "The patient’s CRP was 5 µg/ml – “naïve” patients (n = 12) improved; p < 0.05. Aspirin lowered the risk.",
    "de": "Die Patientin hatte Fieber über 39 °C und Übelkeit; Müdigkeit, Schwäche. Größe 170 cm.",
    "fr": "Le patient a été hospitalisé après une décompensation cardiaque; fièvre à 39 °C, très fatigué.",
    "pl": "Pacjent skarżył się na ból w klatce piersiowej. Leczenie zmniejszyło ryzyko udaru mózgu.",
    "ru": "Пациент жаловался на боль в груди. Аспирин снизил риск инсульта. Давление было нормальным.",
    "el": "Ο ασθενής παραπονέθηκε για πόνο στο στήθος. Η θεραπεία μείωσε τον κίνδυνο εγκεφαλικού.",
    "ja": "患者は発熱と咳を訴えた。アスピリンは脳卒中のリスクを低下させた。血圧は正常であった。",
    "zh": "患者主诉发热和咳嗽。阿司匹林降低了中风风险。血压正常。",
    "ko": "환자는 발열과 기침을 호소하였다. 아스피린은 뇌졸중 위험을 낮추었다.",
}


@pytest.mark.parametrize(
    ("language", "encoding"),
    [
        ("en", "cp1252"),
        ("en", "utf-16"),
        ("en", "utf-16-le"),
        ("en", "utf-16-be"),
        ("de", "cp1252"),
        ("de", "latin-1"),
        ("fr", "latin-1"),
        ("pl", "cp1250"),
        ("pl", "iso8859-2"),
        ("ru", "cp1251"),
        ("ru", "koi8-r"),
        ("el", "cp1253"),
        ("ja", "shift_jis"),
        ("ja", "euc_jp"),
        ("ja", "utf-16"),
        ("zh", "gb18030"),
        ("zh", "big5"),
        ("ko", "euc_kr"),
    ],
)
def test_text_in_other_encoding_is_read_exactly(language: str, encoding: str) -> None:
    text = TEXTS[language].encode(encoding, "ignore").decode(encoding)
    decoded, name = decode_text(text.encode(encoding))
    assert decoded == text
    assert name, "it is reported"


@pytest.mark.parametrize(
    "text",
    [
        "Äthanol 5 µg/l",
        "Blutdruck erhöht",
        "Müller, Jürgen",
        "Ödem",
        "naïf",
        "sœur",
        "Ça va mieux",
        "12;fièvre;37,5",
        "Douleur à l’épaule gauche",
        "Hémoglobine 8,2 g/dl, transfusé",
        "Señora Nuñez, 45 años",
        "mañana",
        "Attività fisica ridotta",
        "§ 4",
        "dose ± 5",
        "mean ± SD: 5 ± 2 °C",
        "5 µg",
    ],
)
def test_short_western_text_is_read_as_windows_1252(text: str) -> None:
    assert decode_text(text.encode("cp1252")) == (text, "cp1252")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1250", "Żołądek bez zmian"),
        ("cp1250", "Ciśnienie tętnicze 140/90"),
        ("cp1250", "12;świąd skóry;37,5"),
        ("cp1250", "Zażółć gęślą jaźń"),
        ("cp1250", "Krevní tlak zvýšený"),
        ("cp1250", "Ošetřující lékař"),
        ("cp1250", "Břicho měkké, nebolestivé"),
        ("cp1250", "fejfájás és hőemelkedés"),
        ("cp1250", "Tensiune arterială crescută"),
        ("iso8859-2", "świąd skóry"),
        ("iso8859-2", "Pacient si stěžuje na bolest hlavy a horečku."),
        ("cp1254", "Karın ağrısı şikayeti"),
        ("mac-roman", "Le patient présente une fièvre élevée depuis trois jours."),
    ],
)
def test_short_text_of_another_alphabet_is_read_exactly(encoding: str, text: str) -> None:
    assert decode_text(text.encode(encoding))[0] == text


@pytest.mark.parametrize("text", ["naïf", "1,2150,naïf\n2,2151,rôle\n", "Müller, Größe, für", "déjà vu", "señor José"])
def test_few_letters_with_accents_are_not_taken_for_other_letters(text: str) -> None:
    decoded, _ = decode_text(text.encode("cp1252"))
    assert not any(letter >= "\u0370" for letter in decoded), "no Greek, Cyrillic or Chinese one"


@pytest.mark.parametrize("data", [b"plain", "naïve".encode(), b"\xef\xbb\xbf" + "naïve".encode()])
def test_utf8_is_not_reported(data: bytes) -> None:
    assert decode_text(data) == (data.decode("utf-8-sig"), "")


@pytest.mark.parametrize("text", ["Müller’s 5 ± 3 µg – “Größe", "naïve", "à la", "±", "α-tocopherol", "Ångström, ß"])
@pytest.mark.parametrize("encoding", ["cp1252", "iso8859-1"])
def test_utf8_that_was_encoded_twice_is_mended_and_reported(text: str, encoding: str, tmp_path: Path) -> None:
    twice = text.encode().decode(encoding)
    assert decode_text(f"Plain.\n{twice}\nLine – 2\n".encode()) == (f"Plain.\n{text}\nLine – 2\n", ENCODED_TWICE)
    (tmp_path / "x.ris").write_text(f"TY  - JOUR\nTI  - {twice}\nAB  - x\nER  - \n")
    items = list(read_sources([tmp_path / "x.ris"]))
    assert [item.title for item in items if isinstance(item, Document)] == [text]
    (remark,) = [item.text for item in items if isinstance(item, FileRemark)]
    assert remark == "read as utf-8 encoded twice, not as UTF-8"


@pytest.mark.parametrize(
    "text", ["NA MANHÃ… de SÃO", "LA SANTÉ… CAFÉ»", "”KÅ”", "MÜ® und Ä™", "Ã¼ – Müller", "Müller – 5 ± 3 µg", "Â é"]
)
def test_letters_that_may_be_meant_are_not_mended(text: str) -> None:
    assert decode_text(text.encode()) == (text, "")


@pytest.mark.parametrize(
    "data",
    [
        "naïve\n".encode() + "naïve".encode("cp1252"),
        "a,naïve\n".encode() + "a,naïf\n".encode("cp1252"),
        "the patient’s “naïve” rôle\n".encode() + "naïf\n".encode("cp1252"),
        TEXTS["en"].encode() * 9 + "naïf".encode("cp1252"),
        TEXTS["zh"].encode() * 9 + b"\xef\n",
        b"\xff\xfea",
        b"\x89PNG\r\n\x1a\n\0\xff",
    ],
)
def test_bytes_without_one_encoding_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="save"):
        decode_text(data)


def _write(folder: Path) -> None:
    german = TEXTS["de"]
    (folder / "note.txt").write_bytes(german.encode("cp1252"))
    (folder / "page.html").write_bytes(f"<p>{german}".encode("cp1252"))
    (folder / "rows.csv").write_bytes(f'pid,day,body\n1,2150-01-02,"{german}"\n'.encode("utf-16"))
    (folder / "mixed.txt").write_bytes("naïve\n".encode() + "naïve".encode("cp1252"))


def test_files_in_other_encodings_are_read_and_reported(tmp_path: Path) -> None:
    _write(tmp_path)
    columns = NoteColumns(patient="pid", time=("day",), text="body")
    items = [*read_sources([tmp_path / "rows.csv"], columns=columns)]
    (tmp_path / "rows.csv").unlink()
    items += read_sources([tmp_path])
    texts = [item.text for item in items if isinstance(item, Document)]
    assert texts == [TEXTS["de"]] * 3
    remarks = [(item.path, item.text.split(",")[0]) for item in items if isinstance(item, FileRemark)]
    assert remarks == [("rows.csv", "read as utf-16"), ("note.txt", "read as cp1252"), ("page.html", "read as cp1252")]
    (skipped,) = [item for item in items if isinstance(item, Skipped)]
    assert "mixed" in skipped.reason


def test_xml_in_wrong_encoding_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "a.nxml"
    path.write_bytes("<article><body><p>naïve</p></body></article>".encode("cp1252"))
    (item,) = read_sources([path])
    assert isinstance(item, Skipped)
    assert "UTF-8" in item.reason
    path.write_bytes(b"<?xml version='1.0' encoding='windows-1252'?>" + path.read_bytes())
    document, _ = read_sources([path])
    assert isinstance(document, Document)
    assert document.text.endswith("naïve")
