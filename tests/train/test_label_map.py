from __future__ import annotations

import io
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from train.label_map import (
    agreement,
    heat_map,
    inner_products,
    most_frequent,
    mutual_information,
    order,
    top_pairs,
)

NAMES = ["ape", "bee", "cat", "dog"]
MAP = np.array(
    [
        [9.0, 0.1, 0.8, -0.4],
        [0.1, 9.0, 0.2, 0.7],
        [0.8, 0.2, 9.0, 0.0],
        [-0.4, 0.7, 0.0, 9.0],
    ]
)


def random_map(labels: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(labels, 4))
    return inner_products(vectors)


def random_targets(rows: int = 300, labels: int = 6) -> np.ndarray:
    rng = np.random.default_rng(4)
    return (rng.random((rows, labels)) < np.linspace(0.02, 0.9, labels)).astype(np.uint8)


def slow_information(y, i, k):
    rows = len(y)
    both = sum(int(row[i] and row[k]) for row in y) / rows
    one, other = sum(map(int, y[:, i])) / rows, sum(map(int, y[:, k])) / rows
    if one == 0 or other == 0 or both == 1:
        return 0.0
    return -1.0 if both == 0 else math.log(both / (one * other)) / -math.log(both)


def test_inner_products_are_those_of_the_vectors_without_the_diagonal():
    vectors = np.array([[1.0, 2.0], [3.0, -1.0], [0.0, 4.0]], dtype=np.float32)
    assert inner_products(vectors).tolist() == [[0, 1, 8], [1, 0, -4], [8, -4, 0]]


def test_mutual_information_equals_the_formula():
    y = random_targets()
    y[:, 1] = 0  # in no row
    y[:, 2] = 1  # in all rows
    y[:, 3] = 1 - y[:, 0]  # never with label 0
    found = mutual_information(sparse.csr_array(y))
    for i in range(6):
        for k in range(6):
            expected = 0.0 if i == k else slow_information(y, i, k)
            assert found[i, k] == pytest.approx(expected, abs=1e-12), (i, k)
    assert found[0, 3] == -1


def test_mutual_information_of_labels_that_only_occur_together_is_one():
    y = np.array([[1, 1], [0, 0], [1, 1], [0, 0]], np.uint8)
    assert mutual_information(sparse.csr_array(y))[0, 1] == pytest.approx(1)


def test_mutual_information_counts_beyond_the_numbers_of_a_byte():
    y = np.zeros((1000, 2), np.uint8)
    y[:600] = 1
    assert mutual_information(sparse.csr_array(y))[0, 1] == pytest.approx(1)


@pytest.mark.parametrize("labels", [1, 2, 3, 40, 301])
def test_order_names_every_label_once(labels):
    assert sorted(order(random_map(labels)).tolist()) == list(range(labels))


def test_order_brings_the_members_of_groups_together():
    group = np.random.default_rng(1).integers(0, 5, 60)
    affinity = np.where(group[:, None] == group[None, :], 0.9, -0.1)
    ordered = group[order(affinity)]
    assert np.count_nonzero(np.diff(ordered)) == len(set(group.tolist())) - 1


def test_the_diagonal_is_never_looked_at():
    other = MAP.copy()
    np.fill_diagonal(other, [np.nan, -3.0, np.inf, 0.5])
    assert order(other).tolist() == order(MAP).tolist()
    assert top_pairs(other, NAMES) == top_pairs(MAP, NAMES)
    assert agreement(other, MAP) == pytest.approx(1)


def test_top_pairs_are_the_most_related_each_once():
    found = [(pair.first, pair.second, pair.affinity) for pair in top_pairs(MAP, NAMES, 3)]
    assert found == [("ape", "cat", 0.8), ("bee", "dog", 0.7), ("bee", "cat", 0.2)]
    assert len(top_pairs(MAP, NAMES)) == 6
    assert top_pairs(np.zeros((1, 1)), ["ape"]) == []


def test_agreement_is_the_correlation_of_ranks():
    one, other = random_map(12), random_map(12, seed=1)
    pairs = np.triu_indices(12, k=1)
    ranks = [np.argsort(np.argsort(values[pairs])) for values in (one, other)]
    assert agreement(one, other) == pytest.approx(np.corrcoef(ranks)[0, 1])
    assert agreement(one, np.exp(one)) == pytest.approx(1)
    assert agreement(one, -one) == pytest.approx(-1)


def test_agreement_with_a_map_of_one_value_is_not_a_number():
    assert math.isnan(agreement(MAP, np.zeros((4, 4))))
    assert math.isnan(agreement(np.zeros((1, 1)), np.zeros((1, 1))))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((2, 3)), "square"),
        (np.zeros(4), "square"),
        (np.array([[0.0, 1.0], [2.0, 0.0]]), "symmetric"),
        (np.array([[0.0, np.nan], [np.nan, 0.0]]), "finite"),
    ],
)
def test_what_is_no_map_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        order(matrix)


def test_names_and_sizes_must_fit():
    with pytest.raises(ValueError, match="4 labels, but 1 names"):
        top_pairs(MAP, ["ape"])
    with pytest.raises(ValueError, match="4 and 3 labels"):
        agreement(MAP, MAP[:3, :3])


def test_the_most_frequent_keep_their_order():
    assert most_frequent(np.array([5, 1, 9, 5, 7]), 3).tolist() == [0, 2, 4]


def test_a_heat_map_shows_each_pair_at_the_names_of_its_labels():
    figure = heat_map(MAP, NAMES, np.array([4, 3, 2, 1]), title="labels of animals")
    axes = figure.axes[0]
    columns = [text.get_text() for text in axes.get_xticklabels()]
    assert sorted(columns) == NAMES
    assert [text.get_text() for text in axes.get_yticklabels()] == columns
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    chosen = [NAMES.index(name) for name in columns]
    expected = MAP[np.ix_(chosen, chosen)].copy()
    np.fill_diagonal(expected, np.nan)
    np.testing.assert_array_equal(shown, expected)
    assert axes.get_title() == "labels of animals"


def test_a_heat_map_of_many_labels_shows_the_most_frequent_and_says_so():
    names = [f"label {i} with a name that does not end soon" for i in range(90)]
    counts = np.arange(90)
    figure = heat_map(random_map(90), names, counts, title="many", most=25)
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert {int(label.split()[1]) for label in labels} == set(range(65, 90))
    assert all(len(label) <= 26 for label in labels)
    assert "the 25 most frequent of 90 labels" in figure.axes[0].get_title()


@pytest.mark.parametrize("labels", [1, 2, 30])
def test_a_heat_map_can_be_drawn_whatever_the_names_hold(labels):
    names = ["$x", "a_b^{", "$y$", *"ü" * labels][:labels]
    drawn = io.BytesIO()
    heat_map(np.zeros((labels, labels)), names, np.ones(labels), title="$").savefig(drawn)
    assert drawn.getvalue().startswith(b"\x89PNG")


def test_all_but_the_figure_works_without_matplotlib():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import numpy as np\n"
        "from train.errors import UserError\n"
        "from train.label_map import heat_map, order\n"
        "zeros = np.zeros((2, 2)); order(zeros)\n"
        "try: heat_map(zeros, ['a', 'b'], np.ones(2), title='')\n"
        "except UserError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'a figure needs matplotlib: pip install "labelwright[report]"'
