"""Columns of the CoNLL shared tasks: a word a line, an empty line after each sentence.

Two kinds of files, told apart by their second column:

    The       B-NP                  word and label: one row a sentence

    The       -      (A0*   *       word; the predicate's lemma or `-`; then for each predicate, in
    judge     -      *)     *       their order, a column of brackets `(A0*`, `*`, `*)` or of labels
    ordered   order  (V*)   *       `B-A0`, `I-A0`, `O`: one row a predicate
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from train.data.assemble import consecutive_parts, numbered_labels
from train.data.dataset import MarkedWords, MultiLabelData
from train.data.files import bare_stem, open_text
from train.data.roles import RoleRow, marks_of
from train.errors import DataError
from train.word_pieces import WordRow

MARK = re.compile(r"O|[BI]-\S+")
NO_PREDICATE = ("-", "_")
PARTS = ("train", "validation", "test")
ENDING = ".conll"


def is_conll_folder(folder: Path) -> bool:
    """Whether a folder holds published parts in columns."""
    return (folder / f"train{ENDING}").is_file()


def read_conll_parts(folder: Path, *, name: str | None = None) -> MultiLabelData:
    """Read train.conll, validation.conll (which may be missing) and test.conll of a folder."""
    files = {part: folder / f"{part}{ENDING}" for part in PARTS}
    found = {part: path for part, path in files.items() if part != "validation" or path.exists()}
    return marked_data(
        {part: rows_of(path) for part, path in found.items()}, name or folder.resolve().name
    )


def read_conll(path: Path, *, name: str | None = None) -> MultiLabelData:
    """Read one file; `--split` cuts it into parts.

    Raises:
        DataError: Lines of one sentence with different numbers of columns, or unknown cells.
    """
    data = marked_data({"train": rows_of(path)}, name or bare_stem(path))
    return MultiLabelData(**{**vars(data), "published": {}})


def marked_data(parts: Mapping[str, Sequence[RoleRow]], name: str) -> MultiLabelData:
    """A data set of the rows of each part; label 0 is `O`, the others are sorted."""
    rows = [row for part in parts.values() for row in part]
    if not rows:
        raise DataError(f"{name} has no rows: every sentence lacks a predicate, or there is none")
    labels = ("O", *sorted({mark for row in rows for mark in row.marks} - {"O"}))
    number = {label: place for place, label in enumerate(labels)}
    marks = [np.array([number[mark] for mark in row.marks], dtype=np.int64) for row in rows]
    words = [WordRow(words=row.words, predicate=row.predicate) for row in rows]
    return MultiLabelData(
        name=name,
        inputs=[row.text() for row in words],
        targets=numbered_labels([np.unique(row).tolist() for row in marks], len(labels)),
        labels=labels,
        published=consecutive_parts({part: len(found) for part, found in parts.items()}),
        words=MarkedWords(rows=words, marks=marks),
    )


def rows_of(path: Path) -> list[RoleRow]:
    """The rows of one file."""
    with open_text(path) as file:
        sentences = list(_sentences(file, path))
    plain = all(
        len(fields) == 2 and MARK.fullmatch(fields[1]) for _, table in sentences for fields in table
    )
    read = _plain_row if plain else _predicate_rows
    return [row for where, table in sentences for row in read(table, where)]


def _sentences(lines: Iterable[str], path: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """The columns of each sentence, and where it begins."""
    table: list[list[str]] = []
    start = 1
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if fields and fields[0] == "-DOCSTART-":
            continue
        if fields and table and len(fields) != len(table[0]):
            raise DataError(
                f"{path}:{number} has {len(fields)} columns, the line before {len(table[0])}: "
                "all lines of a sentence need the same, and an empty line after the last"
            )
        if fields:
            start = start if table else number
            table.append(fields)
        elif table:
            yield f"{path}:{start}", table
            table = []
    if table:
        yield f"{path}:{start}", table


def _plain_row(table: list[list[str]], where: str) -> Iterator[RoleRow]:
    del where
    words, marks = zip(*table, strict=True)
    yield RoleRow(words=words, predicate=None, marks=marks)


def _predicate_rows(table: list[list[str]], where: str) -> Iterator[RoleRow]:
    words = tuple(fields[0] for fields in table)
    if len(table[0]) < 2:
        raise DataError(f"{where}: words without a second column: give labels, or predicates")
    places = [place for place, fields in enumerate(table) if fields[1] not in NO_PREDICATE]
    if len(places) != len(table[0]) - 2:
        raise DataError(
            f"{where}: {len(places)} words are predicates and {len(table[0]) - 2} columns follow "
            "them: each predicate needs one; other words have - in the second column"
        )
    for column, place in enumerate(places, 2):
        cells = [fields[column] for fields in table]
        is_bio = all(MARK.fullmatch(cell) for cell in cells)
        marks = tuple(cells) if is_bio else marks_of(cells, where)
        yield RoleRow(words=words, predicate=place, marks=marks)
