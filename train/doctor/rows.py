"""Rows: without labels or inputs, repeated, torn between parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from scipy import sparse

from train.data.dataset import Features, MultiLabelData, Split, Texts
from train.doctor.finding import Finding, counted, rows_named


def row_findings(data: MultiLabelData, split: Split) -> list[Finding]:
    """All that can be wrong with rows."""
    inputs, label_sets = row_groups(data.inputs), row_groups(data.targets)
    return [
        *_parts(split),
        *_unlabelled(data, split),
        *_blank(data),
        *_across_parts(inputs, label_sets, split),
        *_within_parts(inputs, split),
        *_contradictions(inputs, label_sets),
    ]


def parts_of(split: Split) -> dict[str, np.ndarray]:
    """Row numbers of each part by its name."""
    return {"train": split.train, "validation": split.validation, "test": split.test}


def row_groups(rows: Features | Texts) -> np.ndarray:
    """A number for each row that exactly its equals share; a sparse matrix stays sparse."""
    seen: dict[bytes, int] = {}
    numbers = (seen.setdefault(digest, len(seen)) for digest in _digests(rows))
    return np.fromiter(numbers, dtype=np.int64)


def _digests(rows: Features | Texts) -> Iterator[bytes]:
    """16 bytes for each row, so that the memory needed does not grow with the width of rows."""
    for content in _contents(rows):
        yield hashlib.blake2b(content, digest_size=16).digest()


def _contents(rows: Features | Texts) -> Iterator[bytes]:
    if isinstance(rows, list):
        for text in rows:
            yield text.encode("utf-8", "surrogatepass")
    elif isinstance(rows, np.ndarray):
        for row in rows:
            yield (row + 0.0).tobytes()  # -0.0 becomes 0.0, whose bytes are others
    else:
        matrix = _canonical(rows)
        for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
            yield matrix.indices[start:end].tobytes() + matrix.data[start:end].tobytes()


def _canonical(matrix: sparse.csr_array) -> sparse.csr_array:
    """Sorted and without explicit zeros, so that equal rows have equal bytes."""
    if matrix.has_canonical_format and matrix.data.all():
        return matrix
    matrix = matrix.copy()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _parts(split: Split) -> Iterator[Finding]:
    parts = parts_of(split)
    for name, rows in parts.items():
        if not len(rows):
            yield Finding(
                severity="error",
                what=f"the {name} part has no rows",
                advice="give more rows, or choose other shares with --split",
            )
    for (one, rows), (other, others) in combinations(parts.items(), 2):
        shared = np.intersect1d(rows, others)
        if len(shared):
            yield Finding(
                severity="error",
                what=f"{counted(len(shared), 'row is', 'rows are')} in {one} and in {other}",
                where=rows_named(shared),
                advice="mend the published split, or choose another with --split 60/20/20",
            )


def _unlabelled(data: MultiLabelData, split: Split) -> Iterator[Finding]:
    rows = np.flatnonzero(np.diff(data.targets.indptr) == 0)
    if not len(rows) or len(rows) == data.n_rows:
        return
    used = np.concatenate([split.train, split.validation, split.test])
    is_left_out = not np.isin(rows, used).any()
    yield Finding(
        severity="note" if is_left_out else "warning",
        what=counted(len(rows), "row has no label", "rows have no label"),
        where=rows_named(rows),
        advice="nothing: this split leaves them out"
        if is_left_out
        else "remove them if their labels are unknown rather than none",
    )


def _blank(data: MultiLabelData) -> Iterator[Finding]:
    rows = np.flatnonzero(_is_blank(data.inputs))
    if not len(rows):
        return
    is_text = data.kind == "text"
    what = "an empty text" if is_text else "no feature other than 0"
    yield Finding(
        severity="warning" if is_text else "note",
        what=f"{counted(len(rows), 'row has', 'rows have')} {what}",
        where=rows_named(rows),
        advice="remove them: all of them get the same answer",
    )


def _is_blank(inputs: Features | Texts) -> np.ndarray:
    if isinstance(inputs, list):
        return np.array([not text.strip() for text in inputs])
    if isinstance(inputs, np.ndarray):
        return np.asarray(~inputs.any(axis=1))
    return np.asarray(np.diff(_canonical(inputs).indptr) == 0)


def _across_parts(inputs: np.ndarray, label_sets: np.ndarray, split: Split) -> Iterator[Finding]:
    """Rows on which a model is judged although it saw them."""
    judged = {
        "test": ("train or validation", split.test, np.union1d(split.train, split.validation)),
        "validation": ("train", split.validation, split.train),
    }
    pairs = inputs * (label_sets.max(initial=0) + 1) + label_sets
    for part, (seen_part, rows, seen) in judged.items():
        repeated = np.setdiff1d(rows[np.isin(inputs[rows], inputs[seen])], seen)
        if not len(repeated):
            continue
        same = repeated[np.isin(pairs[repeated], pairs[seen])]
        verb = counted(len(repeated), f"{part} row has", f"{part} rows have")
        distinct = len(np.unique(pairs[same]))
        yield Finding(
            severity="warning",
            what=f"{verb} the same inputs as a {seen_part} row; with the same labels too: "
            f"{len(same)} ({distinct} distinct)",
            where=rows_named(repeated),
            advice=f"keep equal rows in one part, or leave these out: they flatter {part} scores",
        )


def _within_parts(inputs: np.ndarray, split: Split) -> Iterator[Finding]:
    repeated = {
        part: np.delete(rows, np.unique(inputs[rows], return_index=True)[1])
        for part, rows in parts_of(split).items()
    }
    rows = np.concatenate(list(repeated.values()))
    if len(rows):
        shares = ", ".join(f"{len(rows)} in {part}" for part, rows in repeated.items())
        yield Finding(
            severity="note",
            what=f"{counted(len(rows), 'row repeats', 'rows repeat')} the inputs of an earlier row "
            f"of the same part ({shares})",
            where=rows_named(np.sort(rows)),
            advice="nothing if they were observed so often, else keep one of each",
        )


def _contradictions(inputs: np.ndarray, label_sets: np.ndarray) -> Iterator[Finding]:
    """Groups of equal inputs whose label sets differ."""
    distinct = np.unique(np.column_stack([inputs, label_sets]), axis=0)
    groups, sizes = np.unique(distinct[:, 0], return_counts=True)
    rows = np.flatnonzero(np.isin(inputs, groups[sizes > 1]))
    if len(rows):
        verb = counted(int((sizes > 1).sum()), "repeated input has", "repeated inputs have")
        yield Finding(
            severity="warning",
            what=f"{verb} several label sets, in {len(rows)} rows",
            where=rows_named(rows),
            advice="look at them with `data show`: no model can be right on all of them",
        )
