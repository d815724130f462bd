r"""Multi-label ARFF as Mulan and Meka write it, dense or sparse.

Labels keep the order of their ARFF columns, whatever the order in the XML file, so that two files
of one data set agree column by column. Names are compared with backslash escapes undone on both
sides: `TAG_m\'usica` is one label, not `TAG_musica`, however each file spells it.

Features: see `train.data.columns.encode_feature`. A sparse file stays sparse (CSR). `?` in a dense
file is filled with the mean of the file's column (most frequent value of a nominal attribute); in a
sparse file and for a label it is an error.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from train.data.arff_sparse import Entries, read_entries
from train.data.arff_syntax import ArffFile, Attribute, dense_rows, read_arff, unescape
from train.data.columns import (
    MISSING,
    Fail,
    encode_feature,
    encode_nominal,
    encode_numeric,
    fill_missing,
    zero_one_codes,
)
from train.data.dataset import MultiLabelData
from train.data.files import bare_stem, read_bytes
from train.data.matrices import targets_from_dense
from train.errors import DataError

_MEKA_OPTION = re.compile(r"(?:^|\s)-C\s+(-?\d+)\b")


def read_mulan(path: Path, xml_path: Path, *, name: str | None = None) -> MultiLabelData:
    """Read a Mulan pair: the ARFF file and the XML file that names its label attributes."""
    arff = read_arff(path)
    is_label = _match_labels(arff, xml_path, xml_labels(xml_path))
    return _read_rows(arff, is_label, name or bare_stem(path))


def read_meka(path: Path, *, name: str | None = None) -> MultiLabelData:
    """Read a Meka file: `-C n` in its relation says that the first n attributes are labels.

    A negative number means the last ones.
    """
    arff = read_arff(path)
    count = label_count(arff)
    if count is None:
        raise DataError(
            f"{path} does not say which attributes are labels: its @relation needs '-C 6' (the "
            f"first six) or '-C -6' (the last six), or an .xml file of label names beside it"
        )
    n_attributes = len(arff.attributes)
    if count == 0 or abs(count) > n_attributes:
        raise DataError(
            f"{path}: '-C {count}' in @relation must name between 1 and {n_attributes} attributes"
        )
    position = np.arange(n_attributes)
    is_label = position < count if count > 0 else position >= n_attributes + count
    return _read_rows(arff, is_label, name or bare_stem(path))


def label_count(arff: ArffFile) -> int | None:
    """The number after `-C` in the relation of a Meka file; None in other files."""
    option = _MEKA_OPTION.search(arff.relation)
    return int(option[1]) if option else None


def xml_labels(path: Path) -> list[str]:
    """The label names of a Mulan .xml file, in its order."""
    raw = read_bytes(path)
    if b"<!ENTITY" in raw:
        raise DataError(f"{path} declares entities, which label names do not need: remove them")
    try:
        # In other encodings expat stops entities that unfold; external ones are never fetched.
        root = ET.fromstring(raw)  # noqa: S314
    except ET.ParseError as error:
        line = error.position[0]
        raise DataError(f"{path}, line {line}: not well-formed XML ({error.msg})") from error
    names = [element.get("name") for element in root.iter() if element.tag.endswith("label")]
    labels = [name for name in names if name is not None]
    if not labels or len(labels) != len(names):
        raise DataError(f'{path} must name its labels as <label name="..."/>')
    return labels


def _match_labels(arff: ArffFile, xml_path: Path, labels: Sequence[str]) -> np.ndarray:
    wanted = {unescape(label) for label in labels}
    found = [unescape(attribute.name) for attribute in arff.attributes]
    is_label = np.array([name in wanted for name in found])
    declared = set(found)
    missing = [label for label in labels if unescape(label) not in declared]
    if missing:
        raise DataError(
            f"{xml_path} names the label {missing[0]!r}, which {arff.path} does not declare "
            f"({len(missing)} such labels): use the two files of one data set"
        )
    if is_label.sum() != len(labels):
        raise DataError(f"{xml_path} or {arff.path} names a label twice: labels must be unique")
    return is_label


def _read_rows(arff: ArffFile, is_label: np.ndarray, name: str) -> MultiLabelData:
    for attribute, chosen in zip(arff.attributes, is_label, strict=True):
        if chosen and attribute.kind != "numeric" and zero_one_codes(attribute.values) is None:
            raise DataError(
                f"{arff.path}: label {attribute.name!r} must be {{0,1}}, got "
                f"{{{','.join(attribute.values[:5])}}}"
            )
    read = _read_sparse if arff.is_sparse else _read_dense
    inputs, targets, features = read(arff, is_label)
    return MultiLabelData(
        name=name, inputs=inputs, targets=targets, labels=_names(arff, is_label), features=features
    )


def _names(arff: ArffFile, which: np.ndarray) -> tuple[str, ...]:
    return tuple(a.name for a, chosen in zip(arff.attributes, which, strict=True) if chosen)


def _read_sparse(
    arff: ArffFile, is_label: np.ndarray
) -> tuple[sparse.csr_array, sparse.csr_array, tuple[str, ...]]:
    entries = read_entries(arff, is_label)
    targets = _take_columns(entries, is_label).astype(np.uint8)
    return _take_columns(entries, ~is_label), targets, _names(arff, ~is_label)


def _take_columns(entries: Entries, which: np.ndarray) -> sparse.csr_array:
    """Some attributes as a float32 matrix of their own; rows were ascending, so they stay so."""
    place = (np.cumsum(which) - 1).astype(np.int32)
    keep = which[entries.columns] & (entries.values != 0)
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    parts = (
        entries.values[keep].astype(np.float32),
        place[entries.columns[keep]],
        kept_before[entries.indptr],
    )
    return sparse.csr_array(parts, shape=(len(entries.indptr) - 1, int(which.sum())))


def _read_dense(
    arff: ArffFile, is_label: np.ndarray
) -> tuple[np.ndarray, sparse.csr_array, tuple[str, ...]]:
    table = _read_plain_numbers(arff, is_label)
    if table is not None:
        features = _names(arff, ~is_label)
        return (
            table[:, ~is_label].astype(np.float32),
            targets_from_dense(table[:, is_label]),
            features,
        )
    rows, lines = dense_rows(arff)

    def fail(row: int, sentence: str) -> DataError:
        return DataError(f"{arff.path}, line {lines[row]}: {sentence}")

    blocks, labels = [], []
    for attribute, chosen, words in zip(
        arff.attributes, is_label, zip(*rows, strict=True), strict=True
    ):
        if chosen:
            labels.append(_encode_label(attribute, words, fail))
        else:
            blocks.append(encode_feature(attribute, words, fail, fold_two_valued=True))
    filled = [fill_missing(block, slice(None)) for block in blocks]
    inputs = np.hstack([np.empty((len(rows), 0)), *filled]).astype(np.float32)
    features = tuple(name for block in blocks for name in block.names)
    return inputs, targets_from_dense(np.hstack(labels)), features


def _read_plain_numbers(arff: ArffFile, is_label: np.ndarray) -> np.ndarray | None:
    """The whole table at once if nothing but good numbers is in it; else None, and rows decide."""
    is_zero_one = np.array([set(a.values) <= {"0", "1"} for a in arff.attributes])
    is_number = np.array([a.kind == "numeric" for a in arff.attributes])
    if not (is_number | is_zero_one).all():
        return None
    try:
        table = np.loadtxt(io.BytesIO(arff.rows.text), delimiter=",", comments=None, ndmin=2)
    except ValueError:
        return None
    if table.shape[1] != len(arff.attributes) or not np.isfinite(table).all():
        return None
    limited = table[:, is_label | ~is_number]
    return table if ((limited == 0) | (limited == 1)).all() else None


def _encode_label(attribute: Attribute, words: Sequence[str], fail: Fail) -> np.ndarray:
    codes = zero_one_codes(attribute.values)
    if codes is None:
        column = encode_numeric(attribute, words, fail)
    else:
        column = encode_nominal(attribute, words, codes, fail)
    bad = np.flatnonzero((column != 0) & (column != 1))
    if len(bad):
        word = words[bad[0]]
        hint = "a label cannot be missing" if word == MISSING else "write 0 or 1"
        raise fail(bad[0], f"label {attribute.name!r} must be 0 or 1, got {word!r}: {hint}")
    return column
