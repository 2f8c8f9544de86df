"""The XML of an ActiveMQ configuration as a tree of elements that know their line.

Any file may be given, so nothing in it costs more than its size: document types, and with them entities, are refused,
and size, depth and number of elements are bounded. Namespaces are dropped, since files use any prefix or none. The
parser is the one below xml.etree, which alone tells line numbers.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from xml.parsers import expat

from ...store.disk.layout import PathArgument
from ...store.disk.user_file import read_user_file
from ...store.errors import SettingsError

FILE_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 64
ELEMENTS_MAX: Final = 20_000


class XmlElement(NamedTuple):
    """One element. Its name and the names of its attributes have no namespace."""

    name: str
    attributes: dict[str, str]
    children: list[XmlElement]
    line: int


def read_xml(path: PathArgument) -> XmlElement:
    """Return the root element of a file. SettingsError names the file, the line and the problem there."""
    return parse_xml(read_user_file(path, FILE_BYTES_MAX), str(path))


def parse_xml(content: bytes, source: str) -> XmlElement:
    """Return the root element of a document, which errors call `source`."""
    builder = _Builder(source)
    try:
        builder.parser.Parse(content, True)
    except expat.ExpatError as error:
        raise builder.refusal(expat.ErrorString(error.code), error.lineno) from None
    except (LookupError, ValueError) as error:
        if isinstance(error, SettingsError):
            raise
        raise builder.refusal(f"its encoding can't be read ({error})") from None
    assert len(builder.top) == 1, "the parser accepts documents only"
    return builder.top[0]


class _Builder:
    """Builds the tree from the parser's events, and refuses what is above a bound."""

    def __init__(self, source: str) -> None:
        self.top: list[XmlElement] = []
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = self._refuse_document_type
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self._source = source
        self._open: list[XmlElement] = []
        self._elements = 0

    def refusal(self, problem: str, line: int | None = None) -> SettingsError:
        number = self.parser.CurrentLineNumber if line is None else line
        return SettingsError(f"{self._source}, line {number}: {problem}")

    def _refuse_document_type(self, *_: object) -> None:
        raise self.refusal("a document type (<!DOCTYPE>) is not accepted, because it may hold entities: remove it")

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if len(self._open) >= DEPTH_MAX:
            raise self.refusal(f"more than {DEPTH_MAX} elements inside each other")
        if self._elements > ELEMENTS_MAX:
            raise self.refusal(f"more than {ELEMENTS_MAX:,} elements")
        kept = {_local(key): value.strip() for key, value in attributes.items() if not _is_about_xml(key)}
        element = XmlElement(_local(name), kept, [], self.parser.CurrentLineNumber)
        (self._open[-1].children if self._open else self.top).append(element)
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _is_about_xml(attribute: str) -> bool:
    prefix, colon, _ = attribute.partition(":")
    return attribute == "xmlns" or (bool(colon) and prefix in ("xmlns", "xml", "xsi"))
