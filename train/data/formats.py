"""Choose the reader for a file by its ending and, for ARFF, by what its header says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from train.data.arff import label_count, read_meka, read_mulan
from train.data.arff_syntax import read_arff
from train.data.clus import is_hierarchical, read_clus
from train.data.conll import is_conll_folder, read_conll, read_conll_parts
from train.data.dataset import MultiLabelData
from train.data.files import PACKED, bare_stem, bare_suffix
from train.data.images import is_image_folder, read_images
from train.data.npz import read_npz
from train.data.table import read_table
from train.data.xc import read_svmlight, read_xc, read_xc_parts
from train.errors import ConfigError, DataError

Reader = Callable[..., MultiLabelData]

_CLUS_PARTS = ("train", "valid", "test")
_MULAN_PARTS = ("-train", "-test")


def read_path(path: Path, **options: Any) -> MultiLabelData:  # noqa: ANN401 - the reader types them
    """Read a user's own data: a file of a known format, or a folder.

    A folder holds train.txt and test.txt, pictures in `images` with their masks in `masks`, or
    train.conll and test.conll.
    ARFF: beside an .xml file of label names Mulan (`x.xml` serves `x-train.arff` too), with `-C n`
    in its relation Meka, with a hierarchical attribute Clus, whose `x.train`, `x.valid` and
    `x.test` files are read together. Other options than `name` are those of the reader chosen.
    """
    if path.is_dir() and is_image_folder(path):
        return _call(read_images, path, (path,), options)
    if path.is_dir() and is_conll_folder(path):
        return _call(read_conll_parts, path, (path,), options)
    if path.is_dir():
        return _call(read_xc_parts, path, (path / "train.txt", path / "test.txt"), options)
    suffix = bare_suffix(path)
    if suffix == ".arff":
        return _read_any_arff(path, options)
    reader = READERS.get(suffix)
    if reader is None:
        known = ", ".join([".arff", *READERS])
        raise DataError(
            f"{path} is of no known format: the name must end in {known}, with or without "
            f"{', '.join(PACKED)}"
        )
    return _call(reader, path, (path,), options)


def _read_any_arff(path: Path, options: dict[str, Any]) -> MultiLabelData:
    xml_path = xml_beside(path)
    if xml_path is not None:
        return _call(read_mulan, path, (path, xml_path), options)
    arff = read_arff(path)
    if is_hierarchical(arff):
        return _call(read_clus, path, _clus_parts(path), options)
    if label_count(arff) is None:
        raise DataError(
            f"{path} does not say which attributes are labels: put {bare_stem(path)}.xml with "
            f"their names beside it (Mulan), or '-C 6' into its @relation (Meka)"
        )
    return _call(read_meka, path, (path,), options)


def xml_beside(path: Path) -> Path | None:
    """The .xml file of label names that belongs to an ARFF file, if there is one."""
    stem = bare_stem(path)
    shorter = [stem.removesuffix(part) for part in _MULAN_PARTS]
    candidates = [path.with_name(f"{name}.xml") for name in dict.fromkeys([stem, *shorter])]
    return next((candidate for candidate in candidates if candidate.exists()), None)


def _clus_parts(path: Path) -> tuple[Path | None, ...]:
    stem, _, part = bare_stem(path).rpartition(".")
    if part not in _CLUS_PARTS:
        return (path,)
    found = {
        part: [p for p in sorted(path.parent.glob(f"{stem}.{part}.arff*")) if _is_arff(p)]
        for part in _CLUS_PARTS
    }
    return tuple(found[part][0] if found[part] else None for part in _CLUS_PARTS)


def _is_arff(path: Path) -> bool:
    return bare_suffix(path) == ".arff"


def _call(
    reader: Reader, path: Path, files: tuple[Path | None, ...], options: dict[str, Any]
) -> MultiLabelData:
    parameters = inspect.signature(reader).parameters.values()
    known = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(
            f"{path} is not read with the option {unknown[0]!r}: its format knows "
            f"{', '.join(known)}"
        )
    data = reader(*files, **options)
    if not isinstance(data.inputs, list) and not data.inputs.shape[1]:
        raise DataError(f"{path} has labels and no features: there is nothing to learn them from")
    return data


READERS: dict[str, Reader] = {
    ".txt": read_xc,
    ".svm": read_svmlight,
    ".libsvm": read_svmlight,
    ".svmlight": read_svmlight,
    ".csv": read_table,
    ".tsv": read_table,
    ".jsonl": read_table,
    ".parquet": read_table,
    ".npz": read_npz,
    ".conll": read_conll,
}
