"""From a file of words to a bundle that gives the answers of the trained network."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "train"))
from tiny_text import tiny_words, write_encoder

from export.bundle import BundleError, load_bundle
from export.exporting import ExportOptions, export_checkpoint
from serve.inputs import WordRows
from serve.predictor import OnnxPredictor
from train.batches import WordBatch
from train.checkpoint import load_checkpoint
from train.cli import main
from train.word_pieces import WordEncoder, WordRow


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    write_encoder(folder / "encoder")
    data = tiny_words()
    lines = []
    for row, marks in zip(data.words.rows, data.words.marks, strict=True):
        for place, (word, mark) in enumerate(zip(row.words, marks, strict=True)):
            lemma = word if place == row.predicate else "-"
            lines.append(f"{word} {lemma} {data.labels[mark]}")
        lines.append("")
    (folder / "roles.conll").write_text("\n".join(lines), "utf-8")
    code = main(
        ["seal", "--dataset", str(folder / "roles.conll"), "--encoder", str(folder / "encoder"),
         "--tuning", "full", "--monitor", "span_f1", "--max-tokens", "32", "--epochs", "2",
         "--samples", "3", "--out", str(folder / "run"), "--no-progress"]
    )  # fmt: skip
    assert code == 0
    return folder / "run"


def test_a_run_says_how_well_spans_are_found(run):
    metrics = json.loads((run / "metrics.json").read_text())
    assert {"span_f1", "core_role_violations", "word_accuracy"} <= metrics["scores"]["fixed"].keys()
    assert metrics["scores"]["tuned"] == {}


def test_a_bundle_gives_the_best_label_of_each_word(run, tmp_path):
    manifest, parity = export_checkpoint(run / "model.pt", tmp_path / "b", ExportOptions())
    assert manifest.task == "tagging"
    assert manifest.input.kind == "words"
    assert manifest.input.predicate
    assert parity.largest_difference < 1e-5
    predictor = OnnxPredictor(load_bundle(tmp_path / "b"))  # which replays the probe rows
    rows = [
        WordRow(words=("the", "red", "is", "blue", "text"), predicate=2),
        WordRow(words=("blue", "is", "a", "very", "long", "red", "text"), predicate=1),
    ]
    scored = predictor.run(WordRows(rows), 1, with_scores=True)
    checkpoint = load_checkpoint(run / "model.pt")
    feed = WordEncoder(checkpoint.text["tokenizer"], 32).encode(rows)
    with torch.no_grad():
        logits = checkpoint.predictor()(*map(torch.from_numpy, feed.values()))
    expected = logits.sigmoid().numpy()
    np.testing.assert_allclose(scored.scores, expected, atol=1e-5)
    by_word = expected.reshape(2, 7, -1)
    columns = by_word.argmax(2) + np.arange(7) * by_word.shape[2]
    np.testing.assert_array_equal(scored.top_labels, columns)
    np.testing.assert_allclose(scored.top_scores, by_word.max(2), atol=1e-5)
    card = (tmp_path / "b" / "README.md").read_text()
    assert "each word of a row" in card
    assert '"predicate": 1' in card


@pytest.mark.parametrize("options", [{"int8": True}, {"with_energy": True}])
def test_other_graphs_are_refused_in_one_sentence(options, run, tmp_path):
    with pytest.raises(BundleError, match="ce and seal are exported, in 32 bits and without"):
        export_checkpoint(run / "model.pt", tmp_path / "b", ExportOptions(**options))


def test_the_bundle_says_that_spans_keep_rules(run, tmp_path):
    options = ExportOptions(constrained=True)
    manifest, _ = export_checkpoint(run / "model.pt", tmp_path / "b", options)
    assert manifest.constrained
    assert load_bundle(tmp_path / "b").manifest.constrained


def test_the_network_of_a_checkpoint_takes_a_batch(run):
    checkpoint = load_checkpoint(run / "model.pt")
    rows = [WordRow.from_values(values) for values in checkpoint.texts]
    feed = WordEncoder(checkpoint.text["tokenizer"], 32).encode(rows)
    tensors = {name: torch.from_numpy(array) for name, array in feed.items()}
    batch = WordBatch(**tensors)
    assert len(batch[:2]) == 2
    assert batch[:2].word_pieces.shape[0] == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--monitor", "span_f1"], "add --tuning full or --tuning adapter"),
        (["--tuning", "full"], "add --monitor span_f1"),
    ],
)
def test_what_words_need_is_said_in_one_sentence(options, words, run, capsys):
    data = run.parent / "roles.conll"
    assert main(["ce", "--dataset", str(data), *options]) == 2
    assert words in capsys.readouterr().err
