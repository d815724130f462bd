"""Real documents through the server, against the trained network and its tokenizer in torch."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from scipy import sparse

from labelwright_client import Client
from train.checkpoint import load_checkpoint
from train.data import load_dataset
from train.encoding import TfidfEncoder
from train.errors import UserError
from train.pretrained import find_encoder

DOCUMENTS, TRAINED, MAX_TOKENS = 200, 60, 64


@pytest.fixture
def documents() -> list[str]:
    """Reuters news, with the odd ones among them that a server may meet."""
    root = os.environ.get("LABELWRIGHT_DATA")
    if not root or not (Path(root) / "reuters21578").is_dir():
        pytest.skip("needs reuters21578: set LABELWRIGHT_DATA")
    odd = ["", "\U0001f600 \U0001f468‍\U0001f469‍\U0001f467", "漢字 кирил العر ok", "oil " * 3000]
    news = load_dataset("reuters21578").inputs
    assert isinstance(news, list)
    return news[: DOCUMENTS - len(odd)] + odd


@pytest.fixture
def encoder() -> Path:
    """The folder of a real pretrained encoder."""
    pytest.importorskip("transformers")
    try:
        return find_encoder("minilm")
    except UserError as error:
        pytest.skip(str(error))


def in_torch(model: Path, encoder: Path, texts: list[str]) -> np.ndarray:
    """Scores (texts, labels) of the checkpoint, with tokens from transformers."""
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(encoder)(
        texts, padding="longest", truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
    )
    with torch.no_grad():
        logits = load_checkpoint(model).predictor()(tokens["input_ids"], tokens["attention_mask"])
    return logits.sigmoid().numpy()


def test_served_documents_get_the_labels_and_scores_of_torch(
    documents, encoder, tmp_path, run, serving
):
    labels = ["oil" if "oil" in text else "other" for text in documents[:TRAINED]]
    labels[::7] = ["long"] * len(labels[::7])
    pandas.DataFrame({"text": documents[:TRAINED], "labels": labels}).to_csv(
        tmp_path / "news.csv", index=False
    )
    words = ["--encoder", "minilm", "--max-tokens", str(MAX_TOKENS), "--epochs", "3"]
    run("train", "ce", "--dataset", "news.csv", *words, "--out", "run")
    run("export", "run/model.pt")
    expected = in_torch(tmp_path / "run" / "model.pt", encoder, documents)
    names = load_checkpoint(tmp_path / "run" / "model.pt").labels
    with serving("run/model.bundle") as url, Client(url, timeout=60) as client:
        answers = client.predict(documents, top_k=len(names))
    for answer, scores in zip(answers, expected, strict=True):
        best = np.argsort(-scores, kind="stable")
        assert list(answer.labels) == [names[label] for label in best]
        np.testing.assert_allclose(answer.scores, scores[best], rtol=0, atol=1e-4)


def test_served_molecules_get_the_labels_and_scores_of_torch(tmp_path, run, serving):
    molecules = [
        f"{a}{b}({c})c1ccccc1" for a in "CNO" for b in "CNcno" for c in ("=O", "Cl", "[O-]")
    ]
    labels = ["ion" if "-" in molecule else "oxide|ring" for molecule in molecules]
    pandas.DataFrame({"text": molecules, "labels": labels}).to_csv(
        tmp_path / "molecules.csv", index=False
    )
    words = ["--characters", "3", "--epochs", "3", "--out", "run"]
    run("train", "ce", "--dataset", "molecules.csv", *words)
    run("export", "run/model.pt")
    checkpoint = load_checkpoint(tmp_path / "run" / "model.pt")
    encoder = TfidfEncoder.from_json(checkpoint.text["encoder"])
    asked = [*molecules, "", "[Na+].[Cl-]", "co", "CO", "漢字"]
    starts, columns, values = encoder.encode(asked)
    rows = sparse.csr_array((values, columns, starts), shape=(len(asked), len(encoder.terms)))
    with torch.no_grad():
        expected = checkpoint.predictor()(torch.from_numpy(rows.toarray())).sigmoid().numpy()
    assert not np.array_equal(expected[asked.index("co")], expected[asked.index("CO")])
    with serving("run/model.bundle") as url, Client(url) as client:
        answers = client.predict(asked, top_k=len(checkpoint.labels))
    for answer, scores in zip(answers, expected, strict=True):
        found = dict(zip(answer.labels, answer.scores, strict=True))
        np.testing.assert_allclose([found[name] for name in checkpoint.labels], scores, atol=1e-5)
