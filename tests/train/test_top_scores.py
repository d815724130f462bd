from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from train import top_scores
from train.batches import to_rows
from train.errors import DataError
from train.methods import sampled
from train.metrics import TopLabels, evaluate, evaluate_top, propensities
from train.metrics.sets import confusion
from train.problem import Shape
from train.thresholds import (
    TUNABLE,
    metrics_by_threshold,
    monitored_score,
    per_label_thresholds,
    tuned_threshold,
)
from train.top_scores import keeps_best_only, top_labels

CPU = torch.device("cpu")
N_ROWS, N_LABELS = 50, 30


def network(loss: str = "softmax") -> torch.nn.Module:
    torch.manual_seed(1)
    shape = Shape(n_features=8, n_labels=N_LABELS, n_rows=1)
    net = sampled.predictor(sampled.Config(hidden=(5,), loss=loss), shape)
    net.offset.fill_(0.0 if loss == "contrastive" else 0.7)
    return net


class Opaque(torch.nn.Module):
    """A network that tells no embeddings."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


@pytest.fixture
def rows():
    x = np.random.default_rng(0).normal(size=(N_ROWS, 8)).astype(np.float32)
    return to_rows(x, CPU)


@pytest.fixture
def judged():
    """Scores without ties and targets that follow from them, mostly."""
    rng = np.random.default_rng(3)
    scores = rng.permutation(N_ROWS * N_LABELS).reshape(N_ROWS, N_LABELS) / (N_ROWS * N_LABELS)
    scores = scores.astype(np.float32)
    targets = (scores + rng.normal(scale=0.3, size=scores.shape) > 0.9).astype(np.uint8)
    targets[:, 3] = 0
    return scores, sparse.csr_array(targets)


def listed(scores: np.ndarray, k: int) -> TopLabels:
    ranked = np.argsort(-scores, axis=1)[:, :k]
    return TopLabels(
        ranked=ranked, scores=np.take_along_axis(scores, ranked, 1), n_labels=scores.shape[1]
    )


@pytest.mark.parametrize("loss", ["softmax", "contrastive"])
@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
@pytest.mark.parametrize("wrap", [lambda net: net, Opaque], ids=["embeddings", "scores"])
def test_the_best_labels_are_those_of_all_scores(loss, chunk, wrap, rows, monkeypatch):
    monkeypatch.setattr(top_scores, "CHUNK_SCORES", chunk)
    monkeypatch.setattr(top_scores, "CHUNK_ROWS", 7)
    net = network(loss).train()
    found = top_labels(wrap(net), rows, N_LABELS, CPU, k=6)
    with torch.no_grad():
        scores = net(rows.values).sigmoid()
    best = scores.topk(6)
    np.testing.assert_array_equal(found.ranked, best.indices.numpy())
    np.testing.assert_allclose(found.scores, best.values.numpy(), rtol=1e-5)
    assert net.training


def test_some_rows_alone_and_fewer_labels_than_asked_for(rows):
    found = top_labels(network(), rows, N_LABELS, CPU, index=torch.tensor([4, 9]))
    assert found.ranked.shape == (2, N_LABELS)
    whole = top_labels(network(), rows, N_LABELS, CPU)
    np.testing.assert_array_equal(found.ranked, whole.ranked[[4, 9]])


def test_only_large_matrices_are_done_without():
    assert not keeps_best_only(3185, 983)
    assert not keeps_best_only(10, 50_000)
    assert keeps_best_only(10, 50_001)
    assert keeps_best_only(300_000, 13_330)


def test_lists_of_all_labels_give_what_all_scores_give(judged):
    scores, targets = judged
    counts = np.asarray(targets.sum(axis=0)).ravel() * 10
    options = {
        "thresholds": 0.6,
        "train_counts": counts,
        "propensity": propensities(counts, 2000),
        "ks": (1, 3, 10),
    }
    whole = evaluate(scores, targets, **options)
    lists = evaluate_top(listed(scores, N_LABELS), targets, **options)
    assert lists == pytest.approx({key: whole[key] for key in lists})
    missing = set(whole) - set(lists)
    assert {key.split("_h")[0].split("_t")[0] for key in missing} == {
        "map_by_label", "map_by_row", "lrap", "ranking_loss", "coverage_error", "calibration_error"
    }  # fmt: skip


def test_labels_outside_a_list_are_not_predicted(judged):
    scores, targets = judged
    cut = np.where(np.argsort(np.argsort(-scores, axis=1), axis=1) < 4, scores, 0)
    top = listed(scores, 4)
    by_threshold = metrics_by_threshold(top, targets)
    expected = metrics_by_threshold(cut, targets)
    for metric in TUNABLE:
        np.testing.assert_allclose(by_threshold[metric], expected[metric])
    assert tuned_threshold(top, targets) == tuned_threshold(cut, targets)
    own = np.linspace(0.1, 0.9, N_LABELS)
    assert (top.predict(own).toarray() == (cut >= own.astype(np.float32))).all()


@pytest.mark.parametrize("k", [4, N_LABELS])
def test_thresholds_of_labels_are_the_best_cuts_of_their_lists(judged, k):
    scores, targets = judged
    top = listed(scores, k)
    found = per_label_thresholds(top, targets, fallback=0.33, min_positives=5)
    reached = confusion(top.predict(found), targets).by_label.f1()
    positives = np.asarray(targets.sum(axis=0)).ravel()
    for label in range(N_LABELS):
        own = top.scores[top.ranked == label]
        if positives[label] < 5 or not len(own):
            assert found[label] == np.float32(0.33)
            continue
        f1 = [confusion(top.predict(cut), targets).by_label.f1()[label] for cut in own]
        assert reached[label] == pytest.approx(max(f1))
    if k == N_LABELS:
        expected = per_label_thresholds(scores, targets, fallback=0.33)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_tied_scores_of_a_label_are_cut_together():
    top = TopLabels(
        ranked=np.zeros((4, 1), dtype=np.int64),
        scores=np.float32([[0.9], [0.5], [0.5], [0.1]]),
        n_labels=2,
    )
    targets = np.array([[1, 0], [1, 0], [0, 0], [0, 0]])
    found = per_label_thresholds(top, targets, fallback=0.7, min_positives=1)
    np.testing.assert_allclose(found, np.float32([0.3, 0.7]))


def test_the_monitor_of_five_best_labels(judged):
    scores, targets = judged
    expected = evaluate(scores, targets, thresholds=0.5)["ndcg@5"]
    assert monitored_score(scores, targets, "ndcg@5") == pytest.approx(expected)
    assert monitored_score(listed(scores, 9), targets, "ndcg@5") == pytest.approx(expected)
    assert monitored_score(listed(scores, N_LABELS), targets, "example_f1") == pytest.approx(
        monitored_score(scores, targets, "example_f1")
    )


def test_scores_without_labels_are_refused():
    with pytest.raises(DataError, match="every ranked label needs its score"):
        TopLabels(ranked=np.zeros((2, 3), dtype=np.int64), scores=np.zeros((2, 2)), n_labels=4)
