from __future__ import annotations

import numpy as np
import pytest

from train.data import load_dataset, make_split
from train.data.synthetic import read_synthetic
from train.errors import DataError


def test_sizes_are_those_asked_for_and_rows_have_length_one():
    data = load_dataset("synthetic:labels=300,rows=500,features=2000")
    assert (data.n_rows, data.n_labels, data.n_features) == (500, 300, 2000)
    assert data.name == "synthetic_labels_300_rows_500_features_2000"
    assert len(data.labels) == 300
    sizes = np.diff(data.targets.indptr)
    assert 1 <= sizes.min() <= sizes.max() == 5
    lengths = np.sqrt(data.inputs.multiply(data.inputs).sum(axis=1))
    has_features = np.diff(data.inputs.indptr) > 0
    np.testing.assert_allclose(lengths[has_features], 1, rtol=1e-5)
    assert make_split(data).sizes() == (400, 50, 50)


def test_the_same_options_give_the_same_rows_and_another_seed_others():
    one, same, other = (read_synthetic(f"labels=50,rows=200,seed={seed}") for seed in (1, 1, 2))
    assert (one.inputs != same.inputs).nnz == 0
    assert (one.targets != same.targets).nnz == 0
    assert (one.targets != other.targets).nnz > 0


def test_few_labels_are_frequent_and_most_are_rare():
    data = read_synthetic("labels=2000,rows=4000")
    counts = np.asarray(data.targets.sum(axis=0)).ravel()
    assert counts[0] == counts.max()
    # By Zipf's law label 9 has a tenth of the rows of label 0, which a row has only once.
    assert 0.05 < counts[9] / counts[0] < 0.2
    assert np.median(counts) < 3


def test_features_of_a_label_tell_it():
    data = read_synthetic("labels=20,rows=2000,features=5000")
    has = data.targets[:, [7]].toarray().ravel().astype(bool)
    shares = np.asarray((data.inputs > 0)[has].mean(axis=0)).ravel()
    own = shares > 0.6
    assert 4 <= own.sum() <= 5
    assert np.asarray((data.inputs > 0)[~has].mean(axis=0)).ravel()[own].max() < 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("label=5", "no option 'label'; did you mean 'labels'"),
        (
            "labels=many",
            "labels of synthetic must be a whole number from 2 to 100000000, got 'many'",
        ),
        ("labels", "got ''"),
        ("rows=3", "rows of synthetic must be a whole number from 10"),
        ("labels=-4", "got '-4'"),
    ],
)
def test_bad_options_are_told_in_one_sentence(options, message):
    with pytest.raises(DataError, match=message):
        load_dataset(f"synthetic:{options}")


def test_no_other_data_set_takes_sizes():
    with pytest.raises(DataError, match="there is no data set 'demo:labels=5'"):
        load_dataset("demo:labels=5")
