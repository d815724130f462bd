"""Hierarchical ARFF as Clus writes it: the last attribute lists the nodes of a tree of labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from train.data.arff_syntax import ArffFile, Attribute, dense_rows, read_arff
from train.data.assemble import consecutive_parts
from train.data.columns import Fail, encode_feature, fill_missing
from train.data.dataset import MultiLabelData
from train.data.files import bare_stem
from train.data.matrices import targets_at
from train.errors import DataError

ROOT = "root"
_PART_ENDING = re.compile(r"\.(train|valid|test)$")


def read_clus(
    train: Path | None,
    validation: Path | None = None,
    test: Path | None = None,
    *,
    name: str | None = None,
    with_root: bool = False,
) -> MultiLabelData:
    """Read the parts of a data set as one table, its published split filled in.

    Labels are the declared nodes in their order (499 in the FunCat sets). A row has each node it
    names, as `01/01/03@42/01`, and all ancestors of that node. Some papers count one label more,
    the root, which every row has: `with_root` puts it first.

    `?` is filled from the rows of the first part given, normally train: the mean of a numeric
    attribute, the most frequent value of a nominal one. Nominal attributes are one-hot over their
    declared values. With a single part there is no published split.
    """
    given = {"train": train, "validation": validation, "test": test}
    parts = {part: read_arff(path) for part, path in given.items() if path is not None}
    if not parts:
        raise DataError("no part of the data set was given: name at least one .arff file")
    arffs = list(parts.values())
    tree = _check_headers(arffs)
    tables = [dense_rows(arff) for arff in arffs]
    sizes = {part: len(rows) for part, (rows, _) in zip(parts, tables, strict=True)}
    where = [
        f"{arff.path}, line {line}"
        for arff, (_, lines) in zip(arffs, tables, strict=True)
        for line in lines
    ]

    def fail(row: int, sentence: str) -> DataError:
        return DataError(f"{where[row]}: {sentence}")

    *columns, label_words = zip(*(row for rows, _ in tables for row in rows), strict=True)
    inputs, features = _encode(arffs[0].attributes[:-1], columns, next(iter(sizes.values())), fail)
    targets = _closed_targets(tree, label_words, fail)
    return MultiLabelData(
        name=name or _PART_ENDING.sub("", bare_stem(arffs[0].path)),
        inputs=inputs,
        targets=_add_root(targets) if with_root else targets,
        labels=(ROOT, *tree.values) if with_root else tree.values,
        features=features,
        published=consecutive_parts(sizes) if len(sizes) > 1 else {},
    )


def is_hierarchical(arff: ArffFile) -> bool:
    """Whether the file's last attribute is a tree of labels."""
    return arff.attributes[-1].kind == "hierarchical"


def _check_headers(arffs: Sequence[ArffFile]) -> Attribute:
    """The tree of labels that all parts share."""
    first = arffs[0]
    if not is_hierarchical(first):
        raise DataError(
            f"{first.path}: the last attribute must be 'hierarchical' with a list of nodes, got "
            f"{first.attributes[-1].name!r}, which is {first.attributes[-1].kind}"
        )
    if len(first.attributes) == 1:
        raise DataError(f"{first.path} has no attribute before the tree of labels to learn from")
    for arff in arffs[1:]:
        if arff.attributes != first.attributes:
            raise DataError(
                f"{arff.path} declares other attributes than {first.path}: "
                f"use the parts of one data set"
            )
    for attribute in first.attributes[:-1]:
        if attribute.kind == "hierarchical":
            raise DataError(
                f"{first.path}: attribute {attribute.name!r} is a second tree of labels"
            )
    return first.attributes[-1]


def _encode(
    attributes: Sequence[Attribute], columns: Sequence[Sequence[str]], n_reference: int, fail: Fail
) -> tuple[np.ndarray, tuple[str, ...]]:
    blocks = [
        encode_feature(attribute, words, fail, fold_two_valued=False)
        for attribute, words in zip(attributes, columns, strict=True)
    ]
    filled = [fill_missing(block, slice(n_reference)) for block in blocks]
    names = tuple(name for block in blocks for name in block.names)
    return np.hstack(filled).astype(np.float32), names


def _closed_targets(tree: Attribute, words: Sequence[str], fail: Fail) -> sparse.csr_array:
    column = {node: number for number, node in enumerate(tree.values)}
    closed = {
        node: [column[above] for above in _upwards(node) if above in column] for node in column
    }
    rows, columns = [], []
    for row, word in enumerate(words):
        for node in word.split("@"):
            if node not in closed:
                raise fail(row, f"{node!r} is not one of the {len(column)} declared nodes")
            rows.extend([row] * len(closed[node]))
            columns.extend(closed[node])
    return targets_at(np.array(rows), np.array(columns), (len(words), len(column)))


def _upwards(node: str) -> list[str]:
    """A node and its ancestors: 01/01/03, 01/01, 01."""
    steps = node.split("/")
    return ["/".join(steps[:depth]) for depth in range(len(steps), 0, -1)]


def _add_root(targets: sparse.csr_array) -> sparse.csr_array:
    root = sparse.csr_array(np.ones((targets.shape[0], 1), dtype=np.uint8))
    return sparse.csr_array(sparse.hstack([root, targets], format="csr"))
