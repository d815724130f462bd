"""Every mistake on the command line: one sentence that says what to do, exit code 2."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

import export.cli
import serve.cli
import train.cli

COMMANDS = {"train": train.cli.main, "export": export.cli.main, "serve": serve.cli.main}

MISTAKES = {
    "unknown method": (["seel", "--dataset", "demo"], ["no method 'seel'", "did you mean 'seal'?"]),
    "unknown data set": (["ce", "--dataset", "delicius"], ["'delicius'", "'delicious'"]),
    "missing file": (["ce", "--dataset", "nowhere.csv"], ["nowhere.csv does not exist"]),
    "unknown ending": (["ce", "--dataset", "nowhere.doc"], ["nowhere.doc", ".csv"]),
    "no GPU": (["ce", "--dataset", "demo", "--device", "cuda:99"], ["--device cuda:99"]),
    "negative rate": (["ce", "--dataset", "demo", "--lr", "-1"], ["--lr must be positive"]),
    "no threads": (["ce", "--dataset", "demo", "--threads", "0"], ["--threads must be at least 1"]),
    "wrong dropout": (["ce", "--dataset", "demo", "--dropout", "1.5"], ["--dropout must be"]),
    "unknown split": (["ce", "--dataset", "demo", "--split", "halves"], ["halves"]),
    "no published split": (["ce", "--dataset", "demo", "--split", "published"], ["published"]),
    "wrong fraction": (["ce", "--dataset", "demo", "--fraction", "0"], ["fraction"]),
    "missing preset": (["ce", "--dataset", "demo", "--preset", "x.toml"], ["x.toml is no file"]),
    "nothing to resume": (["ce", "--dataset", "demo", "--resume"], ["nothing to resume"]),
    "no half-way": (["mlknn", "--dataset", "demo", "--resume"], ["fitted in one go", "--resume"]),
    "no neighbours": (["mlknn", "--dataset", "demo", "--k", "0"], ["--k must be positive"]),
    "column option": (["ce", "--dataset", "demo", "--label-columns", "t"], ["your own files"]),
    "unknown list": (["list", "metods"], ["cannot list 'metods'"]),
}  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in this process, in an empty folder; the exit code must be the expected one."""
    monkeypatch.chdir(tmp_path)

    def run_words(command, *words, code=0):
        try:
            actual = COMMANDS[command](words)
        except SystemExit as stop:
            actual = stop.code
        captured = capsys.readouterr()
        assert actual == code, captured.out + captured.err
        return SimpleNamespace(stdout=captured.out, stderr=captured.err)

    return run_words


def one_sentence(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda name: name.replace(" ", "-"))
def test_training(run, tmp_path, mistake):
    words, expected = MISTAKES[mistake]
    sentence = one_sentence(run("train", *words, code=2).stderr)
    assert all(word in sentence for word in expected), sentence
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_flag_is_named(run):
    words = ["ce", "--dataset", "demo", "--learning-rat", "1"]
    assert "--learning-rat" in run("train", *words, code=2).stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a,b,labels\n1,2,x|y\n3,x\n", ["my.csv", "line 3"]),
        ("a,b,labels\n1,hello,x\n", ["column 'b'"]),
        ("a,b\n1,2\n", ["label"]),
        ("", ["my.csv"]),
    ],
    ids=["short line", "text in a number column", "no label column", "empty"],
)
def test_broken_data_files(run, tmp_path, content, expected):
    (tmp_path / "my.csv").write_text(content)
    sentence = one_sentence(run("train", "ce", "--dataset", "my.csv", code=2).stderr)
    assert all(word in sentence for word in expected), sentence


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(run, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    words = ["train", "ce", "--dataset", "demo", "--epochs", "1", "--out", "closed/run"]
    assert "choose another --out" in one_sentence(run(*words, code=2).stderr)


def test_an_output_below_a_file(run, tmp_path):
    (tmp_path / "file").write_text("")
    words = ["train", "ce", "--dataset", "demo", "--epochs", "1", "--out", "file/run"]
    assert "choose another --out" in one_sentence(run(*words, code=2).stderr)


def test_an_earlier_run_is_not_overwritten_unasked(run, tmp_path):
    words = ["train", "ce", "--dataset", "demo", "--epochs", "1", "--out", "run"]
    run(*words)
    before = (tmp_path / "run/model.pt").read_bytes()
    assert "--overwrite" in one_sentence(run(*words, code=2).stderr)
    assert (tmp_path / "run/model.pt").read_bytes() == before
    sentence = one_sentence(run(*words, "--resume", "--lr", "0.5", code=2).stderr)
    assert "--lr 0.003" in sentence
    run(*words, "--overwrite")


def test_exporting_what_is_no_checkpoint(run, tmp_path):
    (tmp_path / "model.pt").write_text("hello")
    assert "is not a model.pt" in one_sentence(run("export", "model.pt", code=2).stderr)
    assert "does not exist" in one_sentence(run("export", "other.pt", code=2).stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_serving_a_bundle_with_one_flipped_byte(run, tmp_path):
    run("train", "ce", "--dataset", "demo", "--epochs", "1", "--out", "run")
    run("export", "run/model.pt")
    graph = tmp_path / "run/model.bundle/model.onnx"
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    sentence = one_sentence(run("serve", "run/model.bundle", "--port", "0", code=2).stderr)
    assert "was changed after its export" in sentence
    (tmp_path / "folder").mkdir()
    assert "is not a bundle" in one_sentence(run("serve", "folder", "--port", "0", code=2).stderr)
    assert "does not exist" in one_sentence(run("serve", "nowhere", "--port", "0", code=2).stderr)


@pytest.mark.parametrize(
    "words",
    [["train"], ["train", "ce"], ["train", "compare"], ["train", "results"], ["export"], ["serve"]],
    ids=" ".join,
)
def test_help_ends_with_an_example(run, words):
    text = run(*words, "--help").stdout.strip()
    assert "example:" in "\n".join(text.splitlines()[-2:])
