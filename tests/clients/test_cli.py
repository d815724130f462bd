"""The command `labelwright`: every ending, every format, and one sentence for every mistake."""

from __future__ import annotations

import csv
import io
import json
import runpy
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from labelwright_client import cli
from labelwright_client._client import Client

TABLE = "c,b,labels,a\n1,2,x,3\n\n4,5,y,6\n"
TEXTS = {"kind": "text", "width": None}
NAMELESS = {"kind": "features", "width": 3}


@pytest.fixture
def run(server, tmp_path, monkeypatch, capsys):
    """Run the command in an empty folder against the scripted server -> output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABELWRIGHT_URL", server.url)

    def run_words(*words: str, code: int = 0) -> tuple[str, str]:
        try:
            actual = cli.main(words)
        except SystemExit as stop:
            actual = stop.code
        shown = capsys.readouterr()
        assert actual == code, shown
        return shown.out, shown.err

    return run_words


@pytest.fixture
def model_takes(server, model_answer):
    """Let the one model of the server take other rows."""

    def change(spec: dict) -> None:
        server.then(200, {"models": [model_answer]})
        server.then(200, {**model_answer, "input": spec})

    return change


def sent(server) -> list:
    """All rows that were sent for prediction or embedding, in their order."""
    rows = []
    for seen in server.seen:
        if isinstance(seen.body, bytes):
            rows += np.load(io.BytesIO(seen.body)).tolist()
        elif seen.body:
            rows += seen.body["inputs"]
    return rows


def test_a_table_is_sent_by_the_names_of_the_models_columns(run, server, tmp_path):
    (tmp_path / "my.csv").write_text(TABLE, "utf-8-sig")
    out, shown = run("predict", "my.csv", "--top-k", "2", "--threshold", "tuned")
    assert sent(server) == [[3, 2, 1], [6, 5, 4]]  # a, b, c
    assert list(csv.reader(out.splitlines())) == [
        ["row", "label", "score"], ["0", "label-0", "1.0"], ["1", "label-1", "0.5"],
    ]  # fmt: skip
    assert "2/2 rows" in shown
    assert server.seen[-1].body["model"] == "delicious-seal"
    assert (server.seen[-1].body["top_k"], server.seen[-1].body["threshold"]) == (2, "tuned")


def test_a_file_is_written_in_the_format_of_its_ending(run, tmp_path):
    (tmp_path / "my.tsv").write_text(TABLE.replace(",", "\t"))
    run("predict", "my.tsv", "--out", "labels.jsonl", "--model", "delicious-seal")
    lines = (tmp_path / "labels.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"row": 0, "labels": ["label-0"], "scores": [1.0]},
        {"row": 1, "labels": ["label-1"], "scores": [0.5]},
    ]
    run("predict", "my.tsv", "--out", "labels.txt", "--format", "csv", "--threshold", "0.5")
    assert (tmp_path / "labels.txt").read_text().startswith("row,label,score\n")


def test_embeddings_are_written_as_csv_and_as_json_lines(run, server, tmp_path):
    (tmp_path / "my.csv").write_text(TABLE)
    out, _ = run("embed", "my.csv", "--chunk-rows", "1", "--concurrency", "1")
    assert out == "row,0,1\n0,0.0,0.5\n1,0.0,0.5\n"
    assert server.seen[-1].path == "/embed"
    out, _ = run("embed", "my.csv", "--format", "jsonl")
    assert json.loads(out.splitlines()[1]) == {"row": 1, "embedding": [1.0, 0.5]}


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("my.txt", "first text\n\nthird\n", ["first text", "", "third"]),
        ("my.csv", 'id,text\n1,"one,\ntwo"\n2,three\n', ["one,\ntwo", "three"]),
        ("my.jsonl", '"one"\n\n{"text": "two", "id": 5}\n', ["one", "two"]),
    ],
)
def test_texts(run, server, model_takes, tmp_path, name, content, rows):
    (tmp_path / name).write_text(content)
    model_takes(TEXTS)
    _, shown = run("predict", name)
    assert sent(server) == rows
    assert f"{len(rows)}/{len(rows)} rows" in shown


def test_texts_may_be_in_another_column(run, server, model_takes, tmp_path):
    (tmp_path / "my.csv").write_text("text,title\nno,yes\n")
    model_takes(TEXTS)
    run("predict", "my.csv", "--text-column", "title")
    assert sent(server) == ["yes"]


def test_json_lines_of_numbers(run, server, tmp_path):
    lines = ['{"b": 2, "a": 1, "c": 3, "labels": ["x"]}', "[4, 5, 6]"]
    (tmp_path / "my.jsonl").write_text("\n".join(lines))
    run("predict", "my.jsonl")
    assert sent(server) == [[1, 2, 3], [4, 5, 6]]
    (tmp_path / "sparse.jsonl").write_text('{"0": 1.5}\n{}\n')
    run("predict", "sparse.jsonl")
    assert sent(server)[2:] == [{"0": 1.5}, {}]


def test_a_table_for_a_model_without_names_is_sent_as_it_is(run, server, model_takes, tmp_path):
    (tmp_path / "my.csv").write_text("q,r\n1,2\n")
    model_takes(NAMELESS)
    run("predict", "my.csv")
    assert sent(server) == [[1.0, 2.0]]


def test_arrays(run, server, tmp_path):
    dense = np.array([[1.0, 0, 2], [0, 3, 0]])
    matrix = sp.csr_array(dense)
    np.save(tmp_path / "dense.npy", dense)
    np.savez(tmp_path / "train.npz", x=dense, y=np.ones((2, 1)))
    np.savez(tmp_path / "alone.npz", dense)
    sp.save_npz(tmp_path / "scipy.npz", matrix)
    np.savez(
        tmp_path / "csr.npz",
        x_data=matrix.data, x_indices=matrix.indices, x_indptr=matrix.indptr, x_shape=(2, 3),
    )  # fmt: skip
    for name in ("dense.npy", "train.npz", "alone.npz"):
        server.seen.clear()
        run("predict", name)
        assert sent(server) == dense.tolist()
    for name in ("scipy.npz", "csr.npz"):
        server.seen.clear()
        _, shown = run("predict", name)
        assert sent(server) == [{"0": 1.0, "2": 2.0}, {"1": 3.0}]
        assert "2/2 rows" in shown


MISTAKES = {
    "no such ending": ("my.doc", b"", None, "ends with none of .csv .tsv"),
    "no header": ("my.csv", b"", None, "lacks the column 'a' that the model takes: it has no head"),
    "column missing": ("my.csv", b"a,b\n1,2\n", None, "lacks the column 'c'"),
    "no number": ("my.csv", b"a,b,c\n1,2,x\n", None, "line 2: expected a number in column 'c'"),
    "cells missing": ("my.csv", b"a,b,c\n1,2\n", None, "line 2: expected 3 cells, got 2"),
    "text missing": ("my.csv", b"a\n1\n", TEXTS, "lacks the column 'text'"),
    "no JSON": ("my.jsonl", b"\n{a\n", None, "line 2: expected JSON"),
    "field missing": ("my.jsonl", b'{"a": 1, "b": 2}', None, "line 1: expected the field 'c'"),
    "no names": ("my.jsonl", b'{"a": 1}', NAMELESS, "expected column numbers as names"),
    "texts": ("my.txt", b"one\n", None, "my.txt holds texts, and the model takes numbers"),
    "numbers": ("my.npz", b"", TEXTS, "my.npz holds numbers, and the model takes texts"),
    "no array": ("my.npy", b"hello", None, "my.npy cannot be read as arrays"),
    "not UTF-8": ("my.csv", b"a,b,c\n\xff,1,2\n", None, "my.csv is not UTF-8"),
    "text not UTF-8": ("my.txt", b"one\n\xff\n", TEXTS, "my.txt is not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda name: name.replace(" ", "-"))
def test_a_bad_file_is_one_sentence(run, model_takes, tmp_path, mistake):
    name, content, spec, expected = MISTAKES[mistake]
    (tmp_path / name).write_bytes(content)
    if spec is not None:
        model_takes(spec)
    _, shown = run("predict", name, code=2)
    assert shown.startswith("error: ")
    assert expected in shown
    assert shown.count("\n") == 1


def test_arrays_of_another_shape_are_refused(run, tmp_path):
    np.savez(tmp_path / "two.npz", p=np.ones((1, 3)), q=np.ones((1, 3)))
    assert "holds p, q: expected the rows as array 'x'" in run("predict", "two.npz", code=2)[1]
    np.save(tmp_path / "flat.npy", np.ones(3))
    assert (
        "expected an array (rows, width), got shape (3,)" in run("predict", "flat.npy", code=2)[1]
    )


def test_arrays_need_numpy(run, tmp_path, monkeypatch):
    np.save(tmp_path / "my.npy", np.ones((1, 3)))
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert "my.npy needs numpy: pip install numpy" in run("predict", "my.npy", code=2)[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["predict", "my.csv", "--top-k", "0"], "argument --top-k: expected a whole number from 1"),
        (["predict", "my.csv", "--threshold", "low"], "expected a number, tuned or per-label, got"),
        (["predict", "nowhere.csv"], "cannot read nowhere.csv: No such file"),
        (["predict", "my.csv", "--out", "labels.doc"], "expected a file that ends with .csv or"),
        (["predict", "my.csv", "--out", "no/labels.csv"], "cannot write no/labels.csv: No such"),
        (["predict", "my.csv", "--url", "nowhere"], "base_url is 'nowhere'"),
    ],
)
def test_a_bad_command_is_one_sentence(run, tmp_path, words, expected):
    (tmp_path / "my.csv").write_text(TABLE)
    _, shown = run(*words, code=2)
    assert shown.startswith("error: ")
    assert expected in shown
    assert shown.count("\n") == 1


def test_several_models_must_be_chosen_from(run, server, model_answer, tmp_path):
    (tmp_path / "my.csv").write_text(TABLE)
    server.then(200, {"models": [model_answer, {**model_answer, "name": "other"}]})
    _, shown = run("predict", "my.csv", code=2)
    assert "choose one with --model: the server has delicious-seal, other" in shown


def test_an_error_of_the_server_says_where_its_rows_are(run, server, model_answer, tmp_path):
    (tmp_path / "my.csv").write_text(TABLE)
    problem = {"type": "invalid_input", "message": "row 0 is odd", "request_id": "r"}
    server.then(200, {"models": [model_answer]})
    server.then(200, model_answer)
    server.then(422, {"error": problem})
    _, shown = run("predict", "my.csv", code=2)
    assert shown == (
        "error: 422 invalid_input: row 0 is odd (request r); "
        "in the request that begins with row 0, which it calls row 0\n"
    )


def test_a_server_that_does_not_answer_is_another_code(run, monkeypatch):
    monkeypatch.setattr("labelwright_client._shell.protocol.retry_delay", lambda *_: None)
    _, shown = run("models", "--url", "http://127.0.0.1:1", code=1)
    assert shown.startswith("error: cannot reach http://127.0.0.1:1")


def test_models_are_listed(run):
    out, _ = run("models")
    head, line = out.splitlines()
    assert head.split() == ["name", "method", "dataset", "input", "width", "labels", "version"]
    assert line.split() == [
        "delicious-seal", "seal", "delicious", "features", "3", "983", "0123456789ab",
    ]  # fmt: skip


def test_compare_without_a_file_shows_speeds(run, server):
    out, _ = run("compare", "--baseline", "m")
    assert server.seen[0].path == "/compare?baseline=m"
    assert out.splitlines()[1].split() == [
        "delicious-seal", "seal", "3", "12", "1000", "1", "0.5", "1", "-",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["my.csv", "my.npy"])
def test_compare_with_a_file_shows_labels(run, server, make_predict_answer, tmp_path, name):
    (tmp_path / "my.csv").write_text(TABLE)
    np.save(tmp_path / "my.npy", np.ones((5, 3)))
    out, _ = run("compare", name, "--rows", "2", "--top-k", "3")
    assert out == "delicious-seal  1 ms\n  row 0: label-0 1.000\n  row 1: label-1 0.500\n"
    assert len(sent(server)) == 2


def test_compare_shows_errors_and_rows_without_labels(
    run, server, model_answer, make_predict_answer, tmp_path
):
    (tmp_path / "my.csv").write_text(TABLE)
    empty = make_predict_answer(1)
    empty["predictions"] = [{"labels": [], "scores": []}]
    problem = {"error": {"type": "busy", "message": "full", "request_id": "r"}}
    server.then(200, model_answer)
    server.then(
        200,
        {
            "answers": [
                {"status": 200, "answer": empty, "milliseconds": 1},
                {"status": 429, "answer": problem, "milliseconds": 1},
            ]
        },
    )
    out, _ = run("compare", "my.csv", "--models", "one,two")
    assert out == "one  1 ms\n  row 0: no label\ntwo  1 ms\n  busy: full\n"
    assert server.seen[1].body["models"] == ["one", "two"]


def test_interrupted(run, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "models", interrupted)
    assert run("models", code=130)[1] == "interrupted\n"


def test_who_reads_may_stop_reading(run, monkeypatch):
    redirected = []

    def broken(_):
        raise BrokenPipeError

    monkeypatch.setattr(Client, "models", broken)
    monkeypatch.setattr(cli.os, "dup2", lambda *ends: redirected.append(ends))
    monkeypatch.setattr(cli.sys.stdout, "fileno", lambda: 1, raising=False)
    run("models")
    ((end, standard),) = redirected
    assert standard == 1
    cli.os.close(end)


def test_python_m_is_the_same_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["labelwright", "predict", "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("labelwright_client", run_name="__main__")
    assert stop.value.code == 0
    runpy.run_module("labelwright_client", run_name="other")
    assert "usage: labelwright predict" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["predict"], ["embed"], ["models"], ["compare"]])
def test_help_ends_with_an_example(run, words):
    out, _ = run(*words, "--help")
    assert out.strip().splitlines()[-1].startswith("example: labelwright ")
