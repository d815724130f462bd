"""How much faster than liac-arff are large sparse ARFF files read?

Run: PYTHONPATH=. python benchmarks/reading.py

Needs $LABELWRIGHT_DATA, a folder with `delicious/` and `bibtex/`. Both readers get the same file,
packed or not, and both end with the same pair of CSR matrices, which is checked. Runs alternate, so
that whatever else the machine does falls on both.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import arff as liac
import numpy as np
from scipy import sparse

from train.data.arff import read_mulan
from train.data.files import open_text, read_bytes

FILES = (
    ("delicious/delicious.arff.gz", "delicious/delicious.xml"),
    ("delicious/delicious-test.arff", "delicious/delicious.xml"),
    ("bibtex/bibtex.arff.gz", "bibtex/bibtex.xml"),
    ("bibtex/bibtex-test.arff", "bibtex/bibtex.xml"),
)
ROUNDS = 7

Pair = tuple[sparse.csr_array, sparse.csr_array]


def read_ours(path: Path, xml_path: Path) -> Pair:
    data = read_mulan(path, xml_path)
    return data.inputs, data.targets


def read_liac(path: Path, xml_path: Path) -> Pair:
    with open_text(path) as file:
        content = liac.load(file, return_type=liac.LOD)
    root = ET.fromstring(read_bytes(xml_path))  # noqa: S314 - our own data
    n_labels = sum(element.tag.endswith("label") for element in root.iter())
    rows = content["data"]
    indptr = np.cumsum([0, *(len(row) for row in rows)])
    indices = np.concatenate([np.fromiter(row, np.int32, len(row)) for row in rows])
    values = np.concatenate([np.array([float(v) for v in row.values()]) for row in rows])
    matrix = sparse.csr_array((values, indices, indptr), (len(rows), len(content["attributes"])))
    split = matrix.shape[1] - n_labels  # labels are the last attributes of these files
    return matrix[:, :split].astype(np.float32), matrix[:, split:].astype(np.uint8)


def equal(one: Pair, other: Pair) -> bool:
    return all(a.shape == b.shape and (a != b).nnz == 0 for a, b in zip(one, other, strict=True))


def seconds(read: Callable[[Path, Path], Pair], path: Path, xml_path: Path) -> float:
    start = time.perf_counter()
    read(path, xml_path)
    return time.perf_counter() - start


def main() -> int:
    folder = os.environ.get("LABELWRIGHT_DATA")
    if not folder:
        print("set LABELWRIGHT_DATA to the folder that holds delicious/ and bibtex/")
        return 2
    print(f"{'file':32} {'liac-arff':>10} {'ours':>10} {'ratio':>7}   matrices")
    for name, xml_name in FILES:
        path, xml_path = Path(folder, name), Path(folder, xml_name)
        same = equal(read_ours(path, xml_path), read_liac(path, xml_path))
        times: dict[str, list[float]] = {"liac": [], "ours": []}
        for _ in range(ROUNDS):
            times["liac"].append(seconds(read_liac, path, xml_path))
            times["ours"].append(seconds(read_ours, path, xml_path))
        theirs, ours = (statistics.median(times[who]) for who in ("liac", "ours"))
        verdict = "equal" if same else "DIFFERENT"
        print(f"{name:32} {theirs:9.3f}s {ours:9.3f}s {theirs / ours:6.1f}x   {verdict}")
        if not same:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
