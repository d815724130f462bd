"""Methods of SEAL's tables, with their presets, on real data: trained, exported, served.

Three of them on one data set; all nine on five with LABELWRIGHT_TABLES=1.
"""

from __future__ import annotations

import os

import pytest
import torch

import export.cli
import train.cli
from labelwright_client import Client
from train.checkpoint import load_checkpoint
from train.data import load_dataset
from train.errors import DataError

DATASETS = ("genbase", "bibtex", "delicious", "cal500", "spo_fun")
DYNAMIC = ("margin", "regression", "regression-s", "nce", "ranking")
METHODS = {name: (name,) for name in ("ce", "spen", "dvn", "nce")} | {
    f"seal-{loss}": ("seal", "--loss", loss) for loss in DYNAMIC
}
if not os.environ.get("LABELWRIGHT_TABLES"):
    DATASETS, METHODS = DATASETS[:1], {name: METHODS[name] for name in ("ce", "dvn", "seal-nce")}
SHORT = "--epochs", "1", "--fraction", "0.02", "--no-progress", "--no-report"
ROWS, LABELS = 3, 4


@pytest.mark.parametrize("dataset", DATASETS)
def test_methods_from_their_presets_to_answers(dataset, serving, tmp_path, monkeypatch):
    try:
        data = load_dataset(dataset)
    except DataError as error:
        pytest.skip(f"needs the real data set: {error}")
    monkeypatch.chdir(tmp_path)
    for name, words in METHODS.items():
        assert train.cli.main([*words, "--dataset", dataset, *SHORT, "--out", name]) == 0
        assert export.cli.main([f"{name}/model.pt", "--name", name]) == 0
    inputs = data.inputs[:ROWS]
    rows = inputs if not hasattr(inputs, "toarray") else inputs.toarray()
    bundles = [f"{name}/model.bundle" for name in METHODS]
    with serving(*bundles) as url, Client(url, timeout=60) as client:
        served = {name: client.predict(rows, top_k=LABELS, model=name) for name in METHODS}
    for name, predictions in served.items():
        predictor = load_checkpoint(tmp_path / name / "model.pt").predictor()
        with torch.no_grad():
            best = predictor(torch.from_numpy(rows).float()).sigmoid().topk(LABELS).values
        found = torch.tensor([prediction.scores for prediction in predictions])
        torch.testing.assert_close(found, best, atol=1e-4, rtol=0)
