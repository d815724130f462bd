"""Roles joined with words: a made-up document, and PropBank's own."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from train.data.roles import RoleRow, marks_of, read_roles
from train.errors import DataError
from train.metrics.spans import core_role_violations
from train.spans import spans_of

SKELETON = """\
google/ewt/weblog/00/a.xml 0 0 [WORD] NN (TOP* - - (ARG0*) *
google/ewt/weblog/00/a.xml 0 1 [WORD] VB * see see.01 (V*) *
google/ewt/weblog/00/a.xml 0 2 [WORD] DT * - - (ARG1* *
google/ewt/weblog/00/a.xml 0 3 [WORD] NN *) run run.02 *) (V*)

google/ewt/weblog/00/a.xml 1 0 [WORD] UH (TOP*) - -
"""
WORDS = """\
# text = We see a run
1\tWe\t_
2-3\tseea\t_
2\tsee\t_
3\ta\t_
3.1\tempty\t_
4\trun\t_

# text = Oh no
1\tOh\t_
2\tno\t_
"""


def archive(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:xz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def sources(tmp_path) -> tuple[Path, Path, dict[str, Path]]:
    names = tmp_path / "train.txt"
    names.write_text("weblog/00/a.xml.conllu\nweblog/00/unannotated.xml\n")
    return (
        archive(tmp_path / "skel.tar.xz", {"google/ewt/weblog/00/a.xml.gold_skel": SKELETON}),
        archive(tmp_path / "words.tar.xz", {"sources/weblog/a.xml.conllu": WORDS}),
        {"train": names},
    )


def test_words_and_roles_are_joined_and_uneven_sentences_dropped(sources):
    roles = read_roles(*sources)
    words = ("We", "see", "a", "run")
    assert roles.parts["train"] == [
        RoleRow(words=words, predicate=1, marks=("B-ARG0", "B-V", "B-ARG1", "I-ARG1")),
        RoleRow(words=words, predicate=3, marks=("O", "O", "O", "B-V")),
    ]
    assert (roles.documents, roles.sentences, roles.dropped) == ({"train": 1}, {"train": 1}, 1)


@pytest.mark.parametrize("cells", [["(A*", "(B*)"], ["ARG0"], ["(A**)"]])
def test_broken_brackets_are_refused(cells):
    with pytest.raises(DataError, match=r"a\.xml: .* is no bracket of a span"):
        marks_of(cells, "a.xml")


def test_missing_words_are_told(sources, tmp_path):
    skeletons, _, lists = sources
    with pytest.raises(DataError, match=r"has no words of weblog/a\.xml"):
        read_roles(skeletons, archive(tmp_path / "none.tar.xz", {}), lists)


FOLDER = Path(os.environ.get("LABELWRIGHT_DATA") or ".") / "propbank_ewt"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="PropBank is not on this machine")
def test_propbank_has_its_published_sizes():
    roles = read_roles(
        FOLDER / "propbank_ewt_gold_skel.tar.xz",
        FOLDER / "ud_ewt_sources.tar.xz",
        {part: FOLDER / f"ewt.{part}.txt" for part in ("train", "dev", "test")},
    )
    assert roles.documents == {"train": 540, "dev": 297, "test": 308}
    assert roles.dropped == 28
    assert sum(roles.sentences.values()) == 16_550
    rows = {part: len(rows) for part, rows in roles.parts.items()}
    assert rows == {"train": 40_424, "dev": 4963, "test": 4795}
    train = [row.marks for row in roles.parts["train"]]
    assert len({span[0] for marks in train for span in spans_of(marks)}) == 59
    assert core_role_violations(train) == 0
