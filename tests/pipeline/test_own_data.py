"""A user's own file in each usual format: trained, exported, served with its own label names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import export.cli
import train.cli
from labelwright_client import Client

ROWS, FEATURES = 240, ("height", "width", "weight")
LABELS = ("tall", "wide", "heavy metal")


def table() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(1).normal(size=(ROWS, len(FEATURES))).round(3)
    return x, (x > 0).astype(int)


def names(row: np.ndarray) -> list[str]:
    return [label for label, on in zip(LABELS, row, strict=True) if on]


def write_csv(folder: Path) -> list[str]:
    x, y = table()
    lines = [",".join([*FEATURES, "tags"])]
    lines += [",".join([*map(str, a), "|".join(names(b))]) for a, b in zip(x, y, strict=True)]
    (folder / "my.csv").write_text("\n".join(lines) + "\n")
    return ["my.csv", "--label-columns", "tags"]


def write_jsonl(folder: Path) -> list[str]:
    x, y = table()
    rows = [
        {**dict(zip(FEATURES, a.tolist(), strict=True)), "labels": names(b)}
        for a, b in zip(x, y, strict=True)
    ]
    (folder / "my.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return ["my.jsonl"]


def write_parquet(folder: Path) -> list[str]:
    x, y = table()
    columns = {name: x[:, i] for i, name in enumerate(FEATURES)}
    columns |= {f"label_{name}": y[:, i] for i, name in enumerate(LABELS)}
    pq.write_table(pa.table(columns), folder / "my.parquet")
    return ["my.parquet"]


def write_arff(folder: Path) -> list[str]:
    x, y = table()
    lines = ["@relation mine"]
    lines += [f"@attribute {name} numeric" for name in FEATURES]
    lines += [f"@attribute '{name}' {{0,1}}" for name in LABELS]
    lines += ["@data", *(",".join(map(str, [*a, *b])) for a, b in zip(x, y, strict=True))]
    (folder / "my.arff").write_text("\n".join(lines) + "\n")
    labels = "".join(f'<label name="{name}"></label>' for name in LABELS)
    xml = f'<labels xmlns="http://mulan.sourceforge.net/labels">{labels}</labels>'
    (folder / "my.xml").write_text(xml)
    return ["my.arff"]


def write_xc(folder: Path) -> list[str]:
    x, y = table()
    lines = [f"{ROWS} {len(FEATURES)} {len(LABELS)}"]
    for a, b in zip(x, y, strict=True):
        labels = ",".join(str(i) for i in np.flatnonzero(b))
        lines.append(labels + " " + " ".join(f"{i}:{value}" for i, value in enumerate(a)))
    (folder / "data.txt").write_text("\n".join(lines) + "\n")
    return ["data.txt"]


@pytest.mark.parametrize(
    ("write", "labels"),
    [
        (write_csv, LABELS),
        (write_jsonl, LABELS),
        (write_parquet, LABELS),
        (write_arff, LABELS),
        (write_xc, None),
    ],
    ids=["csv", "jsonl", "parquet", "arff", "xc"],
)
def test_train_export_and_serve(
    write: Callable[[Path], list[str]], labels, tmp_path, monkeypatch, serving
):
    monkeypatch.chdir(tmp_path)
    dataset, *options = write(tmp_path)
    words = ["ce", "--dataset", dataset, *options, "--hidden", "16", "--epochs", "120"]
    assert train.cli.main([*words, "--lr", "0.02", "--patience", "120", "--out", "run"]) == 0
    assert export.cli.main(["run/model.pt"]) == 0
    probe = [[3.0, -3.0, 3.0], [-3.0, 3.0, -3.0]]
    with serving("run/model.bundle") as url, Client(url) as client:
        (model,) = client.models()
        assert model.name == f"{Path(dataset).stem}-ce"
        answers = client.predict(probe, threshold=0.5)
    found = [set(answer.labels) for answer in answers]
    if labels is None:  # an XC file has numbers only: three names of the reader's, told apart
        assert len(found[0]) == 2
        assert len(found[1]) == 1
        assert not found[0] & found[1]
    else:
        assert found == [{"tall", "heavy metal"}, {"wide"}]
