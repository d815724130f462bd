"""`python -m serve score`: every format, mistakes, resuming, workers that die."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from export.bundle import InputSpec, load_bundle
from serve.api import ModelWire, call_of
from serve.cli import main
from serve.inputs import DenseRows, SparseRows
from serve.predictor import OnnxPredictor
from serve.score.scorer import batches, ranked

NAMES = ["a", "b", "c c", "d", "é", "f"]
ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60


@pytest.fixture(scope="module")
def bundle(model, write, tmp_path_factory):
    """The model of all tests, with names of its features."""
    path = tmp_path_factory.mktemp("named") / "tiny.bundle"
    return write(path, model, input=InputSpec(kind="features", width=model.width, names=NAMES))


def score(bundle, *words):
    return main(["score", str(bundle), *map(str, words), "--workers", "1"])


def read(folder: Path) -> list[dict]:
    """All rows of a job in the order of inputs and chunks."""
    rows = []
    for path in sorted((folder / "chunks").iterdir()):
        if path.suffix == ".parquet":
            rows += pq.read_table(path).to_pylist()
        else:
            rows += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return rows


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "chunks").iterdir()}


def assert_answers(found, model, rows, top_k=5, threshold=0.0):
    """Equal to the slow oracle, row by row."""
    assert [one["row"] for one in found] == list(range(len(rows)))
    for one, row in zip(found, rows, strict=True):
        expected = model.expected(row, top_k, threshold)
        assert one["labels"] == [label for label, _ in expected]
        np.testing.assert_allclose(one["scores"], [value for _, value in expected], atol=1e-6)


def write_table(path: Path, names, rows, delimiter=",", quoting=csv.QUOTE_MINIMAL):
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=quoting)
        writer.writerow(["note", *reversed(names)])
        for number, row in enumerate(rows):
            writer.writerow([f"row {number}", *(repr(value) for value in reversed(row))])


def write_input(path: Path, rows) -> Path:
    """The same rows in any format; tables have a column too many, and another order."""
    array = np.array(rows, dtype=np.float32)
    if path.suffix in (".csv", ".tsv"):
        write_table(path, NAMES, rows, "\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(NAMES, row, strict=True), note=1)) for row in rows]
        path.write_text("\n\n".join(lines), "utf-8")
    elif path.suffix == ".parquet":
        columns = {name: array[:, place] for place, name in reversed(list(enumerate(NAMES)))}
        pq.write_table(pa.table({"note": ["x"] * len(rows), **columns}), path, row_group_size=4)
    elif path.suffix == ".npy":
        np.save(path, array)
    else:
        np.savez(path, x=array, y=np.zeros(len(rows)))
    return path


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "jsonl", "npy", "npz"])
@pytest.mark.parametrize("chunk_rows", [3, 7, 100])
def test_every_format_gives_the_answers_of_the_model(bundle, model, tmp_path, ending, chunk_rows):
    rows = model.rows(17, seed=3)
    path = write_input(tmp_path / f"rows.{ending}", rows)
    out = tmp_path / "out"
    assert score(bundle, "--input", path, "--output", out, "--chunk-rows", chunk_rows) == 0
    assert len(contents(out)) == -(-17 // chunk_rows)
    assert_answers(read(out), model, rows)


def test_quoted_cells_may_hold_line_ends(bundle, model, tmp_path):
    rows = model.rows(9, seed=4)
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["two\nlines", *NAMES])
        writer.writerows([['say "so"\n\nthen', *row] for row in rows])
    assert score(bundle, "--input", path, "--output", tmp_path / "o", "--chunk-rows", 2) == 0
    assert_answers(read(tmp_path / "o"), model, rows)


@pytest.mark.parametrize(
    ("words", "top_k", "threshold"),
    [
        (["--top-k", "3"], 3, 0.0),
        (["--threshold", "tuned"], None, "tuned"),
        (["--threshold", "0.5", "--top-k", "2"], 2, 0.5),
        (["--threshold", "per-label", "--top-k", "2"], 2, "per-label"),
        (["--threshold", "per-label", "--format", "jsonl"], None, "per-label"),
        (["--threshold", "1"], None, 1.0),
    ],
)
def test_limits(bundle, model, tmp_path, words, top_k, threshold):
    rows = model.rows(20, seed=5)
    path = write_input(tmp_path / "rows.npy", rows)
    assert score(bundle, "--input", path, "--output", tmp_path / "out", *words) == 0
    thresholds = load_bundle(bundle).manifest.thresholds
    known = {"tuned": thresholds.tuned, "per-label": thresholds.per_label}
    limit = known[threshold] if isinstance(threshold, str) else threshold
    assert_answers(read(tmp_path / "out"), model, rows, top_k, limit)


def test_answers_are_exactly_those_of_the_predictor(bundle, model, tmp_path):
    path = write_input(tmp_path / "rows.npy", model.rows(50, seed=6))
    for form in ("parquet", "jsonl"):
        assert score(bundle, "--input", path, "--output", tmp_path / form, "--format", form) == 0
        predictor = OnnxPredictor(load_bundle(bundle))
        scored = predictor.run(DenseRows(np.load(path)), 5)
        found = read(tmp_path / form)
        values = np.array([one["scores"] for one in found], dtype=np.float32)
        np.testing.assert_array_equal(values, scored.top_scores)
        columns = [[predictor.labels.index(name) for name in one["labels"]] for one in found]
        np.testing.assert_array_equal(columns, scored.top_labels)


def test_equal_scores_stay_in_the_order_of_columns(bundle):
    wire = ModelWire.of(load_bundle(bundle), max_rows=9, max_characters=9)
    limits = call_of({"threshold": 0.2, "top_k": None}, DenseRows(np.zeros((0, 6))), wire).limits
    scores = np.array([[0.5, 0.9, 0.5, 0.1, 0, 0, 0, 0], [0] * 8], dtype=np.float32)
    predictor_says = type("Scored", (), {"scores": scores})
    counts, labels, values = ranked(predictor_says, limits)
    assert counts.tolist() == [3, 0]
    assert labels.tolist() == [1, 0, 2]
    np.testing.assert_array_equal(values, np.float32([0.9, 0.5, 0.5]))


def test_sparse_rows_keep_their_values_in_batches():
    rows = SparseRows(np.array([2, 0, 1, 3]), np.arange(6), np.arange(6, dtype=np.float32))
    parts = list(batches(rows, 3))
    assert [part.counts.tolist() for part in parts] == [[2, 0, 1], [3]]
    assert [part.columns.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5]]


def save_csr(path: Path, rows: np.ndarray, **changes) -> Path:
    """The three arrays of a CSR matrix, as scipy's `save_npz` names them."""
    at, columns = np.nonzero(rows)
    starts = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=len(rows)))])
    parts = {"indptr": starts, "indices": columns, "data": rows[at, columns], **changes}
    np.savez(path, **parts)
    return path


def test_stored_values(bundle, model, tmp_path):
    rows = np.array(model.rows(8, seed=7), dtype=np.float32)
    rows[rows < 0] = 0
    path = save_csr(tmp_path / "rows.npz", rows)
    assert score(bundle, "--input", path, "--output", tmp_path / "out", "--chunk-rows", 3) == 0
    assert_answers(read(tmp_path / "out"), model, rows.astype(float).tolist())


def test_two_inputs_of_the_same_name(bundle, model, tmp_path):
    paths, parts = [], []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        parts.append(model.rows(5, seed=number))
        paths.append(write_input(tmp_path / str(number) / "rows.csv", parts[-1]))
    out = tmp_path / "out"
    assert score(bundle, "--input", *paths, "--output", out, "--chunk-rows", 4) == 0
    names = [f"{file:03d}-rows.csv-{chunk:06d}.parquet" for file in (0, 1) for chunk in (0, 1)]
    assert sorted(contents(out)) == names
    assert_answers(read(out)[:5], model, parts[0])
    assert_answers(read(out)[5:], model, parts[1])


HEADER = "a,b,c c,d,é,f\n"
ROW = "1,2,3,4,5,6\n"
LIST = "[1,2,3,4,5,6]\n"
BAD = {
    "word.csv": (
        f"{HEADER}{ROW}1,2,x,4,5,6\n",
        "row 1 must have a number in column 'c c', got 'x'",
    ),
    "short.csv": (f"{HEADER}{ROW}1,2\n", "row 1 must have 6 cells as the header has, got 2"),
    "nan.csv": (HEADER + ROW * 5 + "1,2,3,4,nan,6\n", "row 5 holds a number that is not finite"),
    "empty.csv": (f"{HEADER}1,2,,4,5,6\n", "row 0 must have a number in column 'c c', got ''"),
    "lacks.csv": ("a,b,d,é,f\n1,2,3,4,5\n", "lacks column 'c c', which the bundle takes"),
    "twice.csv": ("a,b,c c,d,é,f,a\n", "has the column 'a' twice"),
    "bad.jsonl": (LIST * 4 + "[1,2\n", "row 4 is not JSON"),
    "field.jsonl": ('{"a": 1}\n', "row 0 must have the field 'b', got 'a'"),
    "bool.jsonl": (LIST * 4 + "[1,2,3,4,5,true]\n", "row 4 must hold numbers only, got a boolean"),
    "width.jsonl": (LIST * 4 + "[1,2,3]\n", "row 4 must have 6 numbers, got 3"),
    "rows.txt": ("one\n", "holds texts, and the bundle takes numbers"),
    "rows.xlsx": ("", "ends with none of .parquet .csv"),
    "rows.npy": ("junk", "cannot be read as .npy"),
    "rows.npz": ("junk", "cannot be read as .npz"),
    "rows.parquet": ("junk", "cannot be read as .parquet"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_input_is_one_sentence(bundle, tmp_path, capsys, name):
    text, sentence = BAD[name]
    path = tmp_path / name
    path.write_text(text, "utf-8")
    words = ["--input", path, "--output", tmp_path / "out", "--chunk-rows", 2]
    assert score(bundle, *words) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert str(path) in told
    assert told.count("\n") == 1


def test_wrong_columns_of_parquet_are_one_sentence(bundle, tmp_path, capsys):
    columns = {name: [1.0, 2.0, 3.0] for name in NAMES}
    for number, (values, sentence) in enumerate(
        [
            ([1.0, 2.0, None], "row 2 must have a number in column 'd', got null"),
            (["x", "y", "z"], "column 'd' must hold numbers, got string"),
            ([1.0, 1e300, 2.0], "row 1 holds a number that is not finite"),
        ]
    ):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(columns | {"d": values}), path)
        assert score(bundle, "--input", path, "--output", tmp_path / str(number)) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"indices": np.array([0, 6])}, "row 1 has column 6, this model's columns are 0 to 5"),
        ({"data": np.array([1.0, np.inf])}, "row 1 holds a number that is not finite"),
        ({"indptr": np.array([0, 2, 2]), "indices": np.array([3, 3])}, "gives column 3 twice"),
        ({"indptr": np.array([0, 5, 2])}, "make no CSR matrix"),
    ],
)  # fmt: skip
def test_wrong_stored_values_are_one_sentence(bundle, tmp_path, capsys, changes, sentence):
    path = save_csr(tmp_path / "rows.npz", np.eye(2, 6), **changes)
    assert score(bundle, "--input", path, "--output", tmp_path / "out") == 2
    assert sentence in capsys.readouterr().err


def test_wrong_options_are_one_sentence(bundle, model, tmp_path, capsys):
    path = write_input(tmp_path / "rows.npy", model.rows(3))
    for words, sentence in [
        (["--top-k", 9], "--top-k must be 1 to 8, the number of labels, got 9"),
        (["--threshold", 1.5], "--threshold must be a number from 0 to 1"),
        (["--chunk-rows", 0], "--chunk-rows must be at least 1, got 0"),
        (["--address", "x:1"], "--address is for --engine ray"),
    ]:
        assert score(bundle, "--input", path, "--output", tmp_path / "out", *words) == 2
        assert sentence in capsys.readouterr().err
    assert score(bundle, "--input", tmp_path / "none.csv", "--output", tmp_path / "out") == 2
    assert "none.csv: No such file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_columns_without_names_must_be_as_many_as_the_model_takes(bundle_path, tmp_path, capsys):
    path = tmp_path / "rows.csv"
    path.write_text("p,q,r,s,t,u\n1,2,3,4,5,6\n", "utf-8")
    assert score(bundle_path, "--input", path, "--output", tmp_path / "out") == 0
    path.write_text("p,q\n1,2\n", "utf-8")
    assert score(bundle_path, "--input", path, "--output", tmp_path / "other") == 2
    assert "has 2 columns, and the bundle takes 6 that have no names" in capsys.readouterr().err


def test_the_same_command_repeats_nothing(bundle, model, tmp_path, capsys):
    path, out = write_input(tmp_path / "rows.csv", model.rows(10)), tmp_path / "out"
    words = ["--input", path, "--output", out, "--chunk-rows", 4]
    assert score(bundle, *words) == 0
    before = contents(out)
    files = sorted((out / "chunks").iterdir())
    files[1].unlink()
    times = [files[0].stat().st_mtime_ns, files[2].stat().st_mtime_ns]
    (out / "chunks" / ".half-written.1").write_text("x")
    capsys.readouterr()
    assert score(bundle, *words) == 0
    assert "scored 4 rows" in capsys.readouterr().out
    assert contents(out) == before
    assert [files[0].stat().st_mtime_ns, files[2].stat().st_mtime_ns] == times


def test_another_job_in_the_folder_is_refused(bundle, other_path, model, tmp_path, capsys):
    path, out = write_input(tmp_path / "rows.npy", model.rows(10)), tmp_path / "out"
    words = ["--input", path, "--output", out]
    assert score(bundle, *words) == 0
    before = contents(out)
    for change, name in [(["--top-k", 2], "top_k"), (["--chunk-rows", 3], "chunk_rows")]:
        assert score(bundle, *words, *change) == 2
        assert f"holds another job, with other {name} in plan.json" in capsys.readouterr().err
    np.save(path, np.array(model.rows(11), dtype=np.float32))
    assert score(bundle, *words) == 2
    assert "with other inputs in plan.json" in capsys.readouterr().err
    assert contents(out) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    assert score(bundle, "--input", path, "--output", tmp_path / "mine") == 2
    assert "is not empty and has no plan.json" in capsys.readouterr().err


def many(model, tmp_path: Path) -> Path:
    return write_input(tmp_path / "rows.csv", model.rows(600, seed=8))


def wait_for_chunks(folder: Path, count: int) -> None:
    began = time.monotonic()
    while time.monotonic() - began < DEADLINE_SECONDS:
        if (
            folder.is_dir()
            and len([name for name in os.listdir(folder) if name[0] != "."]) >= count
        ):
            return
        time.sleep(0.002)
    raise TimeoutError(f"{folder} never had {count} chunks")


@pytest.mark.parametrize("workers", [1, 2])
def test_goes_on_after_a_kill(bundle, model, tmp_path, workers):
    path, out = many(model, tmp_path), tmp_path / "out"
    words = ["--input", path, "--output", out, "--chunk-rows", 1]
    with subprocess.Popen(
        [sys.executable, "-m", "serve", *map(str, ["score", bundle, *words, "--workers", workers])],
        cwd=ROOT,
    ) as process:
        wait_for_chunks(out / "chunks", 5)
        process.kill()
    done = {path: path.stat().st_mtime_ns for path in (out / "chunks").glob("[!.]*")}
    assert 5 <= len(done) < 600
    assert score(bundle, *words) == 0
    assert {path: path.stat().st_mtime_ns for path in done} == done
    whole = tmp_path / "whole"
    assert score(bundle, "--input", path, "--output", whole, "--chunk-rows", 1) == 0
    assert contents(out) == contents(whole)
    assert_answers(read(out), model, model.rows(600, seed=8))


def test_a_second_process_in_the_folder_is_refused(bundle, model, tmp_path, capsys):
    import fcntl

    path, out = write_input(tmp_path / "rows.npy", model.rows(3)), tmp_path / "out"
    out.mkdir()
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert score(bundle, "--input", path, "--output", out) == 2
    assert "another process is scoring into" in capsys.readouterr().err


def test_a_killed_worker_loses_and_repeats_nothing(bundle, model, tmp_path):
    path, out = many(model, tmp_path), tmp_path / "out"
    killed = []

    def kill_one():
        wait_for_chunks(out / "chunks", 3)
        victim = multiprocessing.active_children()[0]
        os.kill(victim.pid, 9)
        killed.append(len(os.listdir(out / "chunks")))

    killer = threading.Thread(target=kill_one)
    killer.start()
    words = ["--input", path, "--output", out, "--chunk-rows", 1]
    assert main(["score", str(bundle), *map(str, words), "--workers", "2"]) == 0
    killer.join()
    assert killed[0] < 600
    assert_answers(read(out), model, model.rows(600, seed=8))


def test_a_bad_row_ends_the_job_of_two_workers(bundle, model, tmp_path, capsys):
    path = tmp_path / "rows.csv"
    rows = model.rows(40)
    rows[33][2] = float("inf")
    write_table(path, NAMES, rows)
    words = ["--input", path, "--output", tmp_path / "out", "--chunk-rows", "4", "--workers", "2"]
    assert main(["score", str(bundle), *map(str, words)]) == 2
    assert f"{path}, row 33 holds a number that is not finite" in capsys.readouterr().err
