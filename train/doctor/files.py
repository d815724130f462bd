"""The files of a data set: why one could not be read, and what only the file itself tells."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from train.data.arff import xml_labels
from train.data.arff_syntax import read_arff, unescape
from train.data.files import bare_suffix, read_bytes
from train.data.formats import xml_beside
from train.data.registry import find_files, find_info, is_known
from train.doctor.finding import Finding, columns_named, counted
from train.errors import DataError

_HEADER = re.compile(rb"\s*\d+\s+(\d+)\s+(\d+)\s*\n")
_FEATURE = re.compile(rb"(\d+):")
_LABELS = re.compile(rb"^(\d+(?:,\d+)*)(?=\s|$)", re.MULTILINE)


def failure_findings(error: DataError, dataset: str) -> list[Finding]:
    """A data set that cannot be read: what the reader says, and the cause where a look shows it."""
    finding = Finding(
        severity="error",
        what=str(error),
        advice="mend this and check again: whatever comes after it was not examined",
    )
    return [finding, *(cause for path in _xc_files(dataset) for cause in _numbering(path))]


def file_findings(dataset: str, data_dir: Path | None, labels: Sequence[str]) -> list[Finding]:
    """What the two files of a Mulan pair tell beside the data; nothing for other formats."""
    if is_known(dataset):
        files = find_files(find_info(dataset), data_dir, os.environ)
        arff_path, xml_path = files.get("all", files.get("train")), files.get("xml")
    else:
        arff_path = Path(dataset).expanduser()
        xml_path = xml_beside(arff_path) if bare_suffix(arff_path) == ".arff" else None
    if arff_path is None or xml_path is None:
        return []
    attributes = [attribute.name for attribute in read_arff(arff_path).attributes]
    return [*order_findings(labels, xml_labels(xml_path)), *stray_findings(attributes, labels)]


def order_findings(labels: Sequence[str], xml_labels: Sequence[str]) -> list[Finding]:
    """Whether the .xml file lists the labels in another order than that of the columns."""
    columns, listed = [unescape(name) for name in labels], [unescape(name) for name in xml_labels]
    place = next(
        (i for i, pair in enumerate(zip(columns, listed, strict=True)) if len(set(pair)) > 1), None
    )
    if place is None:
        return []
    return [
        Finding(
            severity="note",
            what="the .xml file lists the labels in another order than the columns of the rows",
            where=f"first at label {place}, {columns[place]} by column and {listed[place]} by list",
            advice="know that we keep the order of the columns when you compare with other tools",
        )
    ]


def stray_findings(attributes: Sequence[str], labels: Sequence[str]) -> list[Finding]:
    """Attributes that the .xml file does not name although they stand among or behind the labels.

    Labels are written in one block, the first or the last columns.
    """
    is_label = np.isin(attributes, labels)
    first, last = np.flatnonzero(is_label)[[0, -1]]
    before, behind = np.arange(first), np.arange(last + 1, len(attributes))
    inside = first + np.flatnonzero(~is_label[first : last + 1])
    stray = np.concatenate([inside, min(before, behind, key=len)])
    if not len(stray):
        return []
    verb = counted(len(stray), "attribute stands", "attributes stand")
    return [
        Finding(
            severity="warning",
            what=f"{verb} among the labels without being named in the .xml file",
            where=columns_named("attribute", stray, attributes),
            advice="name labels in the .xml file, or they serve as features and give answers away",
        )
    ]


def _xc_files(dataset: str) -> list[Path]:
    path = Path(dataset).expanduser()
    places = [path / "train.txt", path / "test.txt"] if path.is_dir() else [path]
    return [place for place in places if place.is_file() and bare_suffix(place) == ".txt"]


def _numbering(path: Path) -> Iterator[Finding]:
    """Whether the numbers of an XC file run from 1 to the count in its header."""
    try:
        content = read_bytes(path)
    except DataError:  # a damaged file, as the reader has said already
        return
    header = _HEADER.match(content)
    if header is None:
        return
    body = content[header.end() :]
    labels = b",".join(_LABELS.findall(body)).split(b",")
    found = {"feature": _FEATURE.findall(body), "label": [label for label in labels if label]}
    for (noun, words), limit in zip(found.items(), header.groups(), strict=True):
        numbers = [int(word) for word in words]
        if numbers and min(numbers) >= 1 and max(numbers) == int(limit):
            yield Finding(
                severity="error",
                what=f"the {noun} numbers of {path} run from {min(numbers)} to {max(numbers)}, the "
                f"count in its first line: they start at 1, but XC files count from 0",
                advice=f"subtract 1 from every {noun} number",
            )
