"""The reader of XML: lines, namespaces, and that no file costs more than its size."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from forebay.dispatch.config.activemq_xml import (
    DEPTH_MAX,
    ELEMENTS_MAX,
    FILE_BYTES_MAX,
    XmlElement,
    parse_xml,
    read_xml,
)
from forebay.store.errors import SettingsError

SAMPLES = sorted((Path(__file__).parent / "activemq").glob("*.xml"))

BOMB = (
    b'<?xml version="1.0"?>\n<!DOCTYPE broker [\n  <!ENTITY a "aaaaaaaaaa">\n'
    + b"".join(b'  <!ENTITY %c "%s">\n' % (n + 1, b"&%c;" % n * 10) for n in range(ord("a"), ord("k")))
    + b"]>\n<broker>&k;</broker>"
)


def test_an_element_has_its_name_without_namespace_its_attributes_and_its_line() -> None:
    content = (
        b"<!-- one\ntwo -->\n<amq:broker xmlns:amq='urn:x' xsi:y='z' brokerName=' a '>\n\n  <kahaDB/>\n</amq:broker>"
    )
    assert parse_xml(content, "x") == XmlElement("broker", {"brokerName": "a"}, [XmlElement("kahaDB", {}, [], 5)], 3)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        (b"", 1, "no element found"),
        (b"<broker>\n<kahaDB>\n</broker>", 3, "mismatched tag"),
        (b"<broker>\n\xff</broker>", 2, "not well-formed"),
        (b"<broker>\n&directory;</broker>", 2, "undefined entity"),
        (b"<broker/>\n<broker/>", 2, "junk after document element"),
        (b'<?xml version="1.0" encoding="none-such"?>\n<broker/>', 1, "encoding"),
        (b'<?xml version="1.0" encoding="utf-7"?>\n<broker/>', 1, "encoding"),
        (b"\n<!DOCTYPE broker>\n<broker/>", 2, "document type"),
        (b'\n<!DOCTYPE broker SYSTEM "file:///etc/hostname">\n<broker/>', 2, "document type"),
        (BOMB, 2, "document type"),
        (b"<a>" * (DEPTH_MAX + 1) + b"</a>" * (DEPTH_MAX + 1), 1, f"more than {DEPTH_MAX} elements inside"),
        (b"<a>" + b"<b/>" * ELEMENTS_MAX + b"</a>", 1, f"more than {ELEMENTS_MAX:,} elements"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_no_harmless_xml_is_refused_with_its_line(content: bytes, line: int, problem: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_xml(content, "activemq.xml")
    assert str(refusal.value).startswith(f"activemq.xml, line {line}: ")
    assert problem in str(refusal.value)


def test_as_deep_and_as_many_as_is_allowed_is_accepted() -> None:
    assert parse_xml(b"<a>" * DEPTH_MAX + b"</a>" * DEPTH_MAX, "x").name == "a"
    assert len(parse_xml(b"<a>" + b"<b/>" * (ELEMENTS_MAX - 1) + b"</a>", "x").children) == ELEMENTS_MAX - 1


def test_a_file_above_the_bound_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    content = b"<broker>" + b" " * (FILE_BYTES_MAX - 17) + b"</broker>"
    path = tmp_path / "activemq.xml"
    path.write_bytes(content)
    assert read_xml(path).name == "broker"
    path.write_bytes(content + b"\n")
    with pytest.raises(SettingsError, match="has more than 1,048,576 bytes"):
        read_xml(path)


def test_a_link_is_followed_and_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.xml").symlink_to(SAMPLES[0])
    assert read_xml(tmp_path / "link.xml") == read_xml(SAMPLES[0])
    os.mkfifo(tmp_path / "pipe.xml")
    for name in ("pipe.xml", "missing.xml", ".", "link.xml/x", "a\0b"):
        with pytest.raises(SettingsError, match="can't be read|not a regular file|without NUL"):
            read_xml(f"{tmp_path}/{name}")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_damaged_file_is_read_or_refused_and_nothing_else(path: Path) -> None:
    whole = path.read_bytes()
    chosen = random.Random(7)
    read = 0
    for _ in range(500):
        content = bytearray(whole)
        for _ in range(chosen.randrange(1, 4)):
            at = chosen.randrange(len(content))
            piece = chosen.choice([b"", bytes([chosen.randrange(256)]), b"<", b">", b'"', b"&#1;", b"<!", b"]]>"])
            content[at : at + chosen.randrange(3)] = piece
        try:
            parse_xml(bytes(content), "x")
            read += 1
        except SettingsError:
            pass
    assert 0 < read < 500
