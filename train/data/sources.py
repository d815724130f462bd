"""Which reader reads which known data set: each takes the entry and its files by role."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

from train.data.arff import read_mulan
from train.data.arxiv import read_arxiv
from train.data.assemble import stack_parts
from train.data.clus import read_clus
from train.data.conll import marked_data
from train.data.dataset import MultiLabelData
from train.data.emotions import read_emotions
from train.data.lines import read_lines
from train.data.mat import read_mat
from train.data.pairs import read_pairs
from train.data.registry import DatasetInfo
from train.data.roles import read_roles
from train.data.sgml import read_reuters
from train.data.table import read_table
from train.data.table_files import read_columns
from train.data.weizmann import read_weizmann
from train.data.xc import read_xc_parts

Files = Mapping[str, Path]
PARTS = ("train", "validation", "test")


def read_known(info: DatasetInfo, files: Files) -> MultiLabelData:
    """Read a known data set from its files."""
    return READERS[info.reader](info.name, files)


def _mulan(name: str, files: Files) -> MultiLabelData:
    if "all" in files:
        return read_mulan(files["all"], files["xml"], name=name)
    parts = {part: read_mulan(files[part], files["xml"]) for part in PARTS if part in files}
    return stack_parts(parts, name)


def _clus(name: str, files: Files, *, with_root: bool = False) -> MultiLabelData:
    return read_clus(*(files.get(part) for part in PARTS), name=name, with_root=with_root)


def _paired(files: Files, first: str, second: str) -> dict[str, tuple[Path, Path]]:
    return {
        part: (files[f"{part}_{first}"], files[f"{part}_{second}"])
        for part in PARTS
        if f"{part}_{first}" in files
    }


def _emotions(name: str, files: Files) -> MultiLabelData:
    return read_emotions({part: files[part] for part in PARTS}, files["names"], name=name)


def _molecules(name: str, files: Files) -> MultiLabelData:
    labels = [column for column in read_columns(files["all"]).columns if column != "smiles"]
    return read_table(files["all"], text="smiles", labels=labels, name=name)


def _eurlex(name: str, files: Files) -> MultiLabelData:
    return read_table(files["all"], text="summary", labels="tags", name=name)


def _propbank(name: str, files: Files) -> MultiLabelData:
    lists = {part: files[part] for part in PARTS}
    return marked_data(read_roles(files["roles"], files["words"], lists).parts, name)


READERS: dict[str, Callable[[str, Files], MultiLabelData]] = {
    "mulan": _mulan,
    "clus": _clus,
    "clus_with_root": functools.partial(_clus, with_root=True),
    "xc": lambda name, files: read_xc_parts(files["train"], files["test"], name=name),
    "lines": lambda name, files: read_lines(_paired(files, "texts", "labels"), name=name),
    "pairs": lambda name, files: read_pairs(_paired(files, "x", "y"), name=name),
    "reuters": lambda name, files: read_reuters(list(files.values()), name=name),
    "arxiv": lambda name, files: read_arxiv(list(files.values()), name=name),
    "emotions": _emotions,
    "mat": lambda name, files: read_mat(files["features"], files["labels"], name=name),
    "molecules": _molecules,
    "propbank": _propbank,
    "weizmann": lambda name, files: read_weizmann(files["all"], name=name),
    "eurlex": _eurlex,
}
