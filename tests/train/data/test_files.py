from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from pathlib import Path

import pytest

from train.data.files import bare_stem, bare_suffix, decode, open_text, read_bytes
from train.data.formats import read_path
from train.errors import DataError

TEXT = b"first\nsecond\n"


def write_zip(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("ending", "pack"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_reads_packed_files_like_plain_ones(tmp_path, ending, pack):
    path = tmp_path / f"rows.txt{ending}"
    path.write_bytes(pack(TEXT))
    assert read_bytes(path) == TEXT


def test_reads_the_only_file_of_a_zip(tmp_path):
    path = tmp_path / "rows.txt.zip"
    write_zip(path, {"folder/": b"", "folder/rows.txt": TEXT})
    assert read_bytes(path) == TEXT


def test_refuses_a_zip_of_several_files(tmp_path):
    path = tmp_path / "rows.txt.zip"
    write_zip(path, {"a": b"", "b": b""})
    with pytest.raises(DataError, match="holds 2 files"):
        read_bytes(path)


@pytest.mark.parametrize(
    ("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
@pytest.mark.parametrize("damage", ["cut", "garbage", "flipped"])
def test_damage_is_one_sentence(tmp_path, ending, pack, damage):
    packed = bytearray(pack(TEXT * 1000))
    if damage == "flipped":
        packed[len(packed) // 2 : len(packed) // 2 + 8] = b"\xff" * 8
    path = tmp_path / f"rows.txt{ending}"
    path.write_bytes({"cut": packed[:-9], "garbage": b"not packed", "flipped": packed}[damage])
    with pytest.raises(DataError, match=path.name):
        read_bytes(path)


def test_absent_file_and_folder_are_one_sentence(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_bytes(tmp_path / "none.txt")
    with pytest.raises(DataError, match="cannot be read"):
        read_bytes(tmp_path)


def test_text_skips_a_byte_order_mark_and_refuses_other_encodings(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_bytes("\ufeffé\n".encode())
    with open_text(path) as file:
        assert file.read() == "é\n"
    path.write_bytes("é".encode("latin-1"))
    with pytest.raises(DataError, match="not utf-8"), open_text(path) as file:
        file.read()


def test_decode_names_the_line_of_a_bad_byte(tmp_path):
    with pytest.raises(DataError, match="line 12:"):
        decode(b"good\ngood\nb\xe9d", tmp_path / "x", first_line=10)


@pytest.mark.parametrize(
    ("name", "stem", "suffix"),
    [
        ("a.arff", "a", ".arff"),
        ("a.ARFF.GZ", "a", ".arff"),
        ("a.train.arff.xz", "a.train", ".arff"),
    ],
)
def test_endings(name, stem, suffix):
    assert (bare_stem(Path(name)), bare_suffix(Path(name))) == (stem, suffix)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.arff", "@relation 'r: -C 1'\n@attribute a {0,1}\n@data\n1\n0\n1\n"),
        ("x.csv", "label_a,label_b\n1,0\n0,1\n1,1\n"),
    ],
)
def test_labels_without_features_are_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    options = {"labels": "label_*"} if name.endswith(".csv") else {}
    with pytest.raises(DataError, match="features"):
        read_path(tmp_path / name, **options)
