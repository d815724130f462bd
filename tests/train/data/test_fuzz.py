"""Damaged files of every format: a data set, or one sentence; never another error."""

from __future__ import annotations

import gzip
import io
import os
import random
import warnings
import zipfile

import numpy as np
import pytest

from train.data.dataset import MultiLabelData
from train.data.formats import read_path
from train.errors import UserError

CASES = 250 * int(os.environ.get("LABELWRIGHT_FUZZ", "1"))
ARFF = (
    "@relation 'some: -C 2'\n% a comment\n@attribute a {0,1}\n@attribute 'b c' {0,1}\n"
    "@attribute x numeric\n@attribute y {red,'dark blue'}\n@data\n"
)


def npz():
    file = io.BytesIO()
    np.savez_compressed(file, x=np.eye(3, 4), y=np.eye(3, 2), labels=np.array(["a", "b"]))
    return file.getvalue()


def table():
    import pyarrow as pa
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pa.table({"text": ["one", "two"], "labels": ["a b", "b"]}), file)
    return file.getvalue()


def packed():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.svm", "1,2 0:1 3:0.5\n0 1:2\n" * 20)
    return file.getvalue()


FILES = {
    "x.arff": (ARFF + "1,0,0.5,red\n0,1,-2e3,'dark blue'\n1,1,?,red\n").encode(),
    "sparse.arff": (ARFF.replace("{red,'dark blue'}", "numeric") + "{0 1,2 .5}\n{}\n").encode(),
    "x.txt": b"3 5 4\n0,3 1:0.5 4:1\n 2:1\n1 \n",
    "x.svm": b"1,2 0:1 3:0.5 # a comment\n0 1:2\n3 2:1e-3\n",
    "x.csv": b'text,labels\none,a b\n"two, or\ntwo",b\nthree,\n',
    "x.tsv": b"text\tlabels\none\ta b\ntwo\tb\n",
    "x.jsonl": b'{"text": "one", "labels": ["a", "b"]}\n{"text": "two", "labels": ["b"]}\n',
    "x.npz": npz(),
    "x.parquet": table(),
    "x.svm.zip": packed(),
    "x.svm.gz": gzip.compress(b"1,2 0:1 3:0.5\n0 1:2\n"),
}
PIECES = (
    *(
        b"",
        b"\n",
        b"\r",
        b"\x00",
        b"\xff\xfe",
        b",",
        b":",
        b"{",
        b"}",
        b"'",
        b'"',
        b"%",
        b"#",
        b"?",
    ),
    *(
        b"1e999",
        b"nan",
        b"-1",
        b"999999999",
        b"9" * 30,
        b"\\",
        b" " * 300,
        b"@data\n",
        b"@attribute",
    ),
)


def damaged(content: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(content))
        end = at + rng.choice([0, 1, 2, 20])
        piece = rng.choice([rng.choice(PIECES), rng.randbytes(2), content[at:end] * 3])
        content = content[:at] + piece + content[end:]
    return content


def seeded(name: str, seed: int) -> bytes:
    rng = random.Random(f"{name} {seed}")  # noqa: S311 - repeatable is what it has to be
    return damaged(FILES[name], rng)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_read_or_refused(tmp_path, name):
    path = tmp_path / name
    read, sentences = 0, []
    for seed in range(CASES):
        path.write_bytes(seeded(name, seed))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                data = read_path(path)
        except UserError as error:
            sentences.append(str(error))
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed} of {name}: {path.read_bytes()[:300]!r}") from error
        assert isinstance(data, MultiLabelData), seed
        assert data.targets.shape[1] == len(data.labels), seed
        read += 1
    assert read < CASES
    assert not [sentence for sentence in sentences if "\n" in sentence]


@pytest.mark.parametrize("name", FILES)
def test_each_of_them_is_read_when_it_is_whole(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name])
    assert read_path(tmp_path / name).targets.shape[0] >= 2


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.svm", "1 0:1\n3 2:1\u06f13\n".encode(), "expected a number, got '1\u06f13'"),
        ("x.csv", b'text,"two, or\ntwo"\none,b\n', "columns: text, two, or two"),
        ("x.parquet", seeded("x.parquet", 1666), "not a readable Parquet file"),
    ],
)
def test_what_was_found_is_one_sentence(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as refusal:
        read_path(path)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)
