"""Semantic roles of English web text: PropBank's spans joined with the words of the treebank.

PropBank publishes the roles of the English Web Treebank with every word masked; Universal
Dependencies publishes the words. Both go by genre, document and sentence.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from train.data.files import open_text
from train.errors import DataError

FIRST_ROLE_COLUMN = 8
CELL = re.compile(r"(?:\(([^()*]+))?\*(\))?")
"""`(ARG1*)`, `(ARG1*`, `*` or `*)`: where a span begins and ends."""


@dataclass(frozen=True, kw_only=True)
class RoleRow:
    """One predicate of a sentence."""

    words: tuple[str, ...]
    predicate: int | None
    """Its place among the words; None where labels are not about a predicate."""
    marks: tuple[str, ...]
    """`B-ROLE`, `I-ROLE` or `O` of each word; the predicate itself is `B-V`."""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The rows of each part, and what could not be joined."""

    parts: dict[str, list[RoleRow]]
    documents: dict[str, int]
    """Annotated documents of each part."""
    sentences: dict[str, int]
    """Sentences of each part with as many words as marks."""
    dropped: int
    """Sentences without."""


def read_roles(skeletons: Path, words: Path, lists: Mapping[str, Path]) -> Roles:
    """Join roles and words.

    Args:
        skeletons: Archive of GENRE/NN/DOCUMENT.gold_skel files: roles, words masked.
        words: Archive of GENRE/DOCUMENT.conllu files.
        lists: For each part the file that lists its documents; some have no roles.

    Raises:
        DataError: An archive or a line in it that cannot be read, or a document without words.
    """
    masked = {name.split("ewt/")[-1]: text for name, text in _members(skeletons, ".gold_skel")}
    spoken = {name.split("sources/")[-1]: text for name, text in _members(words, ".conllu")}
    parts: dict[str, list[RoleRow]] = {}
    documents, sentences, dropped = {}, {}, 0
    for part, path in lists.items():
        with open_text(path) as file:
            # One of the published lists has the ending of the files.
            listed = [line.strip().removesuffix(".conllu") for line in file if line.strip()]
        annotated = [name for name in listed if f"{name}.gold_skel" in masked]
        parts[part], documents[part], sentences[part] = [], len(annotated), 0
        for name in annotated:
            genre, document = name.split("/")[0], name.split("/")[-1]
            text = spoken.get(f"{genre}/{document}.conllu")
            if text is None:
                raise DataError(f"{words} has no words of {genre}/{document}: fetch it again")
            for found, table in _joined(text, masked[f"{name}.gold_skel"]):
                if len(found) != len(table):
                    dropped += 1
                    continue
                sentences[part] += 1
                parts[part] += _rows(found, table, name)
    return Roles(parts=parts, documents=documents, sentences=sentences, dropped=dropped)


def marks_of(cells: list[str], where: str) -> tuple[str, ...]:
    """A column of brackets, such as `(ARG1*`, `*` and `*)`, as a mark for each word."""
    marks, role = [], ""
    for cell in cells:
        parsed = CELL.fullmatch(cell)
        if parsed is None or (parsed[1] and role):
            raise DataError(f"{where}: {cell!r} is no bracket of a span such as (A1*, * or *)")
        begins = parsed[1]
        role = begins or role
        marks.append(f"{'B' if begins else 'I'}-{role}" if role else "O")
        if parsed[2]:
            role = ""
    return tuple(marks)


def _joined(text: str, skeleton: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The words and the columns of each sentence of a document."""
    return zip(_words(text), _tables(skeleton), strict=False)


def _words(text: str) -> Iterator[list[str]]:
    """The words of each sentence: lines numbered `3`, and not `3-4` or `3.1`."""
    for sentence in re.split(r"\n\s*\n", text.strip()):
        lines = [line.split("\t") for line in sentence.splitlines() if not line.startswith("#")]
        yield [fields[1] for fields in lines if fields[0].isdigit()]


def _tables(skeleton: str) -> Iterator[list[list[str]]]:
    for sentence in re.split(r"\n\s*\n", skeleton.strip()):
        yield [line.split() for line in sentence.splitlines()]


def _rows(words: list[str], table: list[list[str]], where: str) -> Iterator[RoleRow]:
    """One row for each column of roles."""
    width = len(table[0])
    if any(len(fields) != width for fields in table):
        raise DataError(f"{where}: the lines of a sentence differ in length: fetch it again")
    for column in range(FIRST_ROLE_COLUMN, width):
        marks = marks_of([fields[column] for fields in table], where)
        if "B-V" not in marks:
            raise DataError(f"{where}: a column of roles has no predicate: fetch it again")
        yield RoleRow(words=tuple(words), predicate=marks.index("B-V"), marks=marks)


def _members(archive: Path, ending: str) -> Iterator[tuple[str, str]]:
    """Names and texts of the files of an archive; nothing is written to disk."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = tar.extractfile(member) if member.name.endswith(ending) else None
                if file is not None:
                    yield member.name, io.TextIOWrapper(file, encoding="utf-8").read()
    except (OSError, tarfile.TarError, UnicodeDecodeError) as error:
        raise DataError(f"{archive} cannot be read ({error}): fetch it again") from error
