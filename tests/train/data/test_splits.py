"""Splits: exact, disjoint, seeded, and at least as even as a reference implementation's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from iterstrat.ml_stratifiers import MultilabelStratifiedShuffleSplit
from scipy import sparse

from train.data import MultiLabelData, make_split, splits
from train.data.registry import find_info
from train.data.splits import stratify
from train.errors import ConfigError, DataError

SHARES = (0.6, 0.2, 0.2)


def as_data(
    targets: np.ndarray, *, name: str = "mine", published: dict[str, np.ndarray] | None = None
) -> MultiLabelData:
    return MultiLabelData(
        name=name,
        inputs=np.zeros((len(targets), 1), np.float32),
        targets=sparse.csr_array(targets.astype(np.uint8)),
        labels=tuple(f"l{i}" for i in range(targets.shape[1])),
        published=published or {},
    )


def skewed(rows: int, labels: int, seed: int = 0) -> np.ndarray:
    """Labels from frequent to rare, and dependent on one another through a hidden group."""
    rng = np.random.default_rng(seed)
    frequency = 0.5 / np.arange(1, labels + 1) ** 0.7
    group = rng.integers(5, size=rows)
    tilt = rng.gamma(1.0, size=(5, labels))
    return rng.random((rows, labels)) < frequency * tilt[group]


def unevenness(targets: np.ndarray, part: np.ndarray) -> float:
    """How far a label's frequency in a part is from its frequency in all rows, on average."""
    return float(np.abs(targets[part].mean(0) - targets.mean(0)).mean())


def chi_square(targets: np.ndarray, parts: np.ndarray) -> float:
    total = 0.0
    for label in range(targets.shape[1]):
        count = targets[:, label].sum()
        for part, share in enumerate(SHARES):
            if count:
                total += (targets[parts == part, label].sum() - share * count) ** 2 / count
    return total


matrices = st.tuples(
    st.integers(5, 60), st.integers(1, 12), st.integers(0, 10**6), st.floats(0, 1)
).map(lambda a: np.random.default_rng(a[2]).random((a[0], a[1])) < a[3])


@given(matrices, st.sampled_from(["60/20/20", "80/10/10", "34/33/33"]), st.integers(0, 99))
def test_parts_are_disjoint_complete_sorted_and_of_the_right_size(targets, rule, seed):
    split = make_split(as_data(targets), rule, seed)
    parts = (split.train, split.validation, split.test)
    assert sorted(np.concatenate(parts)) == list(range(len(targets)))
    assert all((np.diff(part) > 0).all() for part in parts)
    for part, percent in zip(parts, map(int, rule.split("/")), strict=True):
        exact = len(targets) * percent / 100
        assert len(part) >= 1
        assert abs(len(part) - exact) < 1 or exact < 1 or len(targets) < 10
    assert split.rule == rule


@given(matrices, st.integers(0, 99))
def test_the_seed_decides(targets, seed):
    first, again = (make_split(as_data(targets), "60/20/20", seed) for _ in range(2))
    assert all(np.array_equal(getattr(first, p), getattr(again, p)) for p in ("train", "test"))


def test_another_seed_gives_another_split():
    data = as_data(skewed(200, 8))
    assert not np.array_equal(make_split(data, seed=0).test, make_split(data, seed=1).test)


@given(matrices, st.integers(0, 99))
def test_exchanges_never_make_the_label_counts_less_even(targets, seed):
    matrix = sparse.csr_array(targets.astype(np.uint8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "MOST_EXCHANGES", 0)
        dealt = stratify(matrix, SHARES, np.random.default_rng(seed))
    exchanged = stratify(matrix, SHARES, np.random.default_rng(seed))
    assert np.array_equal(np.bincount(dealt), np.bincount(exchanged))
    assert chi_square(targets, exchanged) <= chi_square(targets, dealt) + 1e-9


def test_exchanges_end_where_no_single_swap_helps():
    targets = skewed(40, 6)
    parts = stratify(sparse.csr_array(targets.astype(np.uint8)), SHARES, np.random.default_rng(0))
    reached = chi_square(targets, parts)
    # Swaps of rows that share a label are judged too cautiously, so only the others must not help.
    for i in range(40):
        for j in range(i):
            if parts[i] != parts[j] and not (targets[i] & targets[j]).any():
                swapped = parts.copy()
                swapped[[i, j]] = swapped[[j, i]]
                assert chi_square(targets, swapped) >= reached - 1e-6


@pytest.mark.parametrize(("rows", "labels"), [(600, 14), (1500, 150), (400, 80)])
def test_labels_are_spread_at_least_as_evenly_as_by_the_reference(rows, labels):
    targets = skewed(rows, labels)
    ours, reference = [], []
    for seed in range(3):
        matrix = sparse.csr_array(targets.astype(np.uint8))
        parts = stratify(matrix, (0.8, 0.2), np.random.default_rng(seed))
        ours.append(unevenness(targets, parts == 1))
        splitter = MultilabelStratifiedShuffleSplit(1, test_size=0.2, random_state=seed)
        _, test = next(splitter.split(targets, targets))
        reference.append(unevenness(targets, test))
    assert np.mean(ours) <= np.mean(reference)


def test_a_label_of_five_rows_reaches_every_part():
    rng = np.random.default_rng(3)
    targets = np.zeros((200, 10), bool)
    for label in range(10):
        targets[rng.choice(200, 5, replace=False), label] = True
    split = make_split(as_data(targets), "60/20/20")
    for part in (split.train, split.validation, split.test):
        assert targets[part].any(axis=0).all()


# --- published


def published(targets: np.ndarray, *ends: int) -> dict[str, np.ndarray]:
    names = ("train", "test") if len(ends) == 2 else ("train", "validation", "test")
    return dict(zip(names, np.split(np.arange(len(targets)), ends[:-1]), strict=True))


def test_published_parts_are_taken_as_they_are():
    targets = skewed(100, 5)
    split = make_split(as_data(targets, published=published(targets, 50, 70, 100)), "published")
    assert split.sizes() == (50, 20, 30)
    assert np.array_equal(split.validation, np.arange(50, 70))
    assert split.rule == "published"


def test_a_fifth_of_the_training_rows_validates_where_no_part_was_published():
    targets = skewed(100, 5)
    split = make_split(as_data(targets, published=published(targets, 60, 100)), "published")
    assert split.sizes() == (48, 12, 40)
    assert sorted([*split.train, *split.validation]) == list(range(60))


def test_asking_for_a_published_split_that_is_not_there_is_an_error():
    with pytest.raises(DataError, match=r"mine has no published test and train part.*60/20/20"):
        make_split(as_data(skewed(20, 3)), "published")


# --- the other arguments


def test_unlabelled_rows_are_dropped_only_on_demand():
    targets = skewed(100, 5)
    targets[::10] = False
    labelled = np.flatnonzero(targets.any(axis=1))
    data = as_data(targets, published=published(targets, 60, 80, 100))
    for rule in ("60/20/20", "published"):
        assert sum(make_split(data, rule).sizes()) == 100
        split = make_split(data, rule, drop_unlabelled=True)
        kept = np.sort(np.concatenate([split.train, split.validation, split.test]))
        assert np.array_equal(kept, labelled)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.99])
def test_a_fraction_thins_the_training_rows_alone(fraction):
    targets = skewed(500, 12)
    whole, part = (make_split(as_data(targets), fraction=f) for f in (1.0, fraction))
    assert len(part.train) == pytest.approx(fraction * len(whole.train), abs=1)
    assert set(part.train) < set(whole.train)
    assert np.array_equal(part.validation, whole.validation)
    assert np.array_equal(part.test, whole.test)
    shuffled = np.random.default_rng(0).permutation(whole.train)[: len(part.train)]
    if fraction < 0.9:
        assert unevenness(targets[whole.train], np.searchsorted(whole.train, part.train)) < (
            unevenness(targets[whole.train], np.searchsorted(whole.train, shuffled))
        )


def test_auto_follows_the_registry_for_a_known_data_set():
    info = find_info("cal500")
    targets = np.ones((info.rows, 3), bool)
    targets[:7] = False
    split = make_split(as_data(targets, name="cal500"))
    assert (split.rule, sum(split.sizes())) == ("60/20/20", info.rows - 7)


def test_auto_is_not_fooled_by_a_name():
    targets = skewed(100, 4)
    targets[:7] = False
    data = as_data(targets, name="cal500", published=published(targets, 60, 80, 100))
    split = make_split(data)
    assert (split.rule, split.sizes()) == ("published", (60, 20, 20))


def test_auto_draws_for_own_data_without_a_split():
    assert make_split(as_data(skewed(50, 4))).rule == "60/20/20"


@pytest.mark.parametrize("rule", ["random", "60/20", "60/20/30", "100/0/0", "a/b/c", "-60/80/80"])
def test_an_unknown_rule_is_an_error(rule):
    with pytest.raises(ConfigError, match="the split rule must be auto, published or three"):
        make_split(as_data(skewed(20, 3)), rule)


@pytest.mark.parametrize("fraction", [0, -0.5, 1.01, float("nan")])
def test_an_impossible_fraction_is_an_error(fraction):
    with pytest.raises(ConfigError, match="fraction must be above 0 and at most 1"):
        make_split(as_data(skewed(20, 3)), fraction=fraction)


def test_too_few_rows_are_an_error():
    with pytest.raises(DataError, match="2 rows cannot be cut into 3 parts"):
        make_split(as_data(np.ones((2, 1), bool)))
