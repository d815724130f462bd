"""Real documents through the server, against the trained network and its tokenizer in torch."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from labelwright_client import Client
from train.checkpoint import load_checkpoint
from train.data import load_dataset
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
