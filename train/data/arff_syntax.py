"""The parts of an ARFF file: relation, declared attributes, and the rows as they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from train.data.files import decode, read_bytes
from train.data.tokens import Block
from train.errors import DataError

Kind = Literal["numeric", "nominal", "hierarchical"]

_NUMERIC = ("numeric", "real", "integer")
_DATA = re.compile(rb"^[ \t]*@data\b[^\n]*(?:\n|\Z)", re.IGNORECASE | re.MULTILINE)
_COMMENT = re.compile(rb"^[ \t]*%[^\n]*", re.MULTILINE)
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)\s*(.*)", re.IGNORECASE)
_RELATION = re.compile(r"@relation\s+(.*)", re.IGNORECASE)
# What is not quoted is stripped later: `[^,]*?\s*` takes time with the square of a run of blanks.
_VALUE = re.compile(rf"\s*(?:({_QUOTED})\s*(?=,|$)|([^,]*))(,|$)")


@dataclass(frozen=True)
class Attribute:
    """One declared column; `values` are those of a nominal, or the nodes of a hierarchical one."""

    name: str
    kind: Kind
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArffFile:
    """A file taken apart; its rows are still text, comments blanked."""

    path: Path
    relation: str
    attributes: tuple[Attribute, ...]
    rows: Block

    @property
    def is_sparse(self) -> bool:
        """Whether rows are written `{index value, ...}`."""
        return self.rows.text.lstrip()[:1] == b"{"


def read_arff(path: Path) -> ArffFile:
    """Read and take apart a file, packed or not; rows are checked later, by who parses them."""
    raw = read_bytes(path)
    data = _DATA.search(raw)
    if data is None:
        raise DataError(f"{path} has no @data line: it is not an ARFF file or it is cut short")
    relation, attributes = _parse_header(path, decode(raw[: data.start()], path))
    rows = raw[data.end() :]
    if b"%" in rows:
        rows = _COMMENT.sub(b"", rows)
    if not rows.strip():
        raise DataError(f"{path} has no rows after its @data line")
    return ArffFile(
        path, relation, attributes, Block.of(path, rows, raw.count(b"\n", 0, data.end()) + 1)
    )


def dense_rows(arff: ArffFile) -> tuple[list[list[str]], list[int]]:
    """The values of each row of a dense file, unquoted, and the line number of each row."""
    width = len(arff.attributes)
    text = decode(arff.rows.text[1:], arff.path, arff.rows.first_line)
    rows, lines = [], []
    for number, line in enumerate(text.split("\n"), start=arff.rows.first_line):
        if not line or line.isspace():
            continue
        values = split_values(line)
        if len(values) != width:
            raise DataError(
                f"{arff.path}, line {number}: expected {width} values, one for each declared "
                f"attribute, got {len(values)}"
            )
        rows.append(values)
        lines.append(number)
    return rows, lines


def split_values(text: str) -> list[str]:
    """Split at commas outside quotes, and take the quotes off."""
    text = text.strip()
    if "'" not in text and '"' not in text:
        values = text.split(",")
        is_tight = " " not in text and "\t" not in text
        return values if is_tight else [value.strip() for value in values]
    values, position = [], 0
    while match := _VALUE.match(text, position):
        values.append(unquote(match[1] or match[2].strip()))
        position = match.end()
        if match[3] != ",":
            return values
    # Text after a closing quote: kept whole, so that whoever checks the values names it.
    return [*values, text[position:]]


def unquote(name: str) -> str:
    r"""Take quotes off and undo the escapes inside them; unquoted text, even `m\'usica`, stays."""
    if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        return unescape(name[1:-1])
    return name


def unescape(name: str) -> str:
    r"""Undo backslash escapes: `m\'usica` becomes `m'usica`."""
    return re.sub(r"\\(.)", r"\1", name) if "\\" in name else name


def _parse_header(path: Path, header: str) -> tuple[str, tuple[Attribute, ...]]:
    relation, attributes = "", []
    for number, line in enumerate(map(str.strip, header.split("\n")), start=1):
        if not line or line.startswith("%"):
            continue
        if match := _RELATION.fullmatch(line):
            relation = unquote(match[1])
        elif match := _ATTRIBUTE.fullmatch(line):
            attributes.append(_parse_attribute(f"{path}, line {number}", match))
        else:
            raise DataError(
                f"{path}, line {number}: expected @relation, @attribute, @data or a % comment, "
                f"got {line[:60]!r}"
            )
    if not attributes:
        raise DataError(f"{path} declares no @attribute before its @data line")
    return relation, tuple(attributes)


def _parse_attribute(where: str, match: re.Match[str]) -> Attribute:
    name, declared = unquote(match[1]), match[2].strip()
    word = declared.split(maxsplit=1)[0].lower() if declared else ""
    if word in _NUMERIC:
        return Attribute(name, "numeric")
    if word == "hierarchical":
        return Attribute(name, "hierarchical", tuple(split_values(declared[len(word) :])))
    if declared.startswith("{") and declared.endswith("}"):
        return Attribute(name, "nominal", tuple(split_values(declared[1:-1])))
    raise DataError(
        f"{where}: attribute {name!r} must be numeric or a {{list,of,values}}, got "
        f"{declared[:60]!r}: remove the attribute or convert it"
    )
