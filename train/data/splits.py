"""Cut the rows of a data set into training, validation and test parts, each with its labels' share.

Parts are drawn by iterative stratification (Sechidis, Tsoumakas and Vlahavas, "On the
stratification of multi-label data", ECML PKDD 2011): the rarest label is dealt out first, always to
the part that lacks most of it. Differences from the paper: a full part takes no more rows, so sizes
are exact, and at the end rows are exchanged while that brings label counts nearer to their shares.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy import sparse

from train.data.dataset import MultiLabelData, Split
from train.data.registry import known
from train.errors import ConfigError, DataError

OWN_DATA_RULE = "60/20/20"
HELD_OUT = 0.2
"""Share of the published training rows that validates where no validation part was published."""
MOST_EXCHANGES = 500
MOST_STRATIFIED = 50_000
"""Labels; dealing out more takes minutes, and most are too rare to be divided."""
DONE = np.iinfo(np.int64).max


def make_split(
    data: MultiLabelData,
    rule: str = "auto",
    seed: int = 0,
    fraction: float = 1.0,
    drop_unlabelled: bool = False,
) -> Split:
    """Cut the rows in three; the same arguments always give the same parts.

    Args:
        data: The rows.
        rule: `published` (a missing validation part is 20 % of the training rows, stratified),
            three shares such as `60/20/20`, or `auto`: the default of a known data set with its
            habit of dropping unlabelled rows; for other data `published` if there is such a split,
            else `60/20/20`.
        seed: Which of the equally good splits.
        fraction: Share of the training rows to keep; validation and test stay whole.
        drop_unlabelled: Leave out rows without any label.

    Raises:
        ConfigError: An unknown rule, or a fraction outside (0, 1].
        DataError: No such published split, or fewer rows than parts.
    """
    if not 0 < fraction <= 1:
        raise ConfigError(f"the fraction must be above 0 and at most 1, not {fraction}")
    if rule == "auto":
        rule, dropped_by_default = _default(data)
        drop_unlabelled = drop_unlabelled or dropped_by_default
    usable = np.diff(data.targets.indptr) > 0 if drop_unlabelled else np.ones(data.n_rows, bool)
    if rule == "published":
        train, validation, test = _published(data, usable, seed)
    else:
        train, validation, test = _drawn(data, rule, np.flatnonzero(usable), seed)
    if fraction < 1:
        train = _stratified(data.targets, train, (fraction, 1 - fraction), (seed, 1))[0]
    return Split(train=train, validation=validation, test=test, rule=rule)


def stratify(
    targets: sparse.csr_array, shares: tuple[float, ...], rng: np.random.Generator
) -> np.ndarray:
    """Number of the part of each row; part j gets `shares[j]` of the rows and of every label.

    Where labels are too many to be dealt out one by one, parts get rows at random.
    """
    parts = np.full(targets.shape[0], -1)
    room = _sizes(targets.shape[0], shares)
    if targets.shape[1] > MOST_STRATIFIED:
        return rng.permutation(np.repeat(np.arange(len(shares)), room))
    by_label = targets.tocsc()
    left = np.diff(by_label.indptr).astype(np.int64)
    lacking = left[:, None] * np.asarray(shares)
    # The least is the label with the fewest rows left; a random rank decides between equals.
    ranks = left * len(left) + rng.permutation(len(left))
    ranks[left == 0] = DONE
    while ranks.size and ranks[label := int(ranks.argmin())] != DONE:
        column = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        rows = rng.permutation(column[parts[column] < 0])
        parts[rows] = _deal(len(rows), lacking[label].tolist(), room, rng)
        touched, owners = _entries(targets, rows)
        np.subtract.at(lacking, (touched, parts[owners]), 1)
        changed, times = np.unique(touched, return_counts=True)
        left[changed] -= times
        ranks[changed] -= times * len(left)
        ranks[changed[left[changed] == 0]] = DONE
    unlabelled = rng.permutation(np.flatnonzero(parts < 0))
    parts[unlabelled] = np.repeat(np.arange(len(shares)), room)
    _exchange(targets, parts, lacking)
    return parts


def _deal(n_rows: int, wants: list[float], room: list[int], rng: np.random.Generator) -> list[int]:
    """A part for each of `n_rows` rows of one label; takes the places from `room`."""
    ties = rng.permutation(len(room)).tolist()
    parts = []
    for _ in range(n_rows):
        _, _, _, part = max(
            (want, free, tie, part)
            for part, (want, free, tie) in enumerate(zip(wants, room, ties, strict=True))
            if free
        )
        wants[part] -= 1
        room[part] -= 1
        parts.append(part)
    return parts


def _exchange(targets: sparse.csr_array, parts: np.ndarray, lacking: np.ndarray) -> None:
    """Swap rows of two parts while that lowers the chi-square statistic of the label counts.

    The statistic is the sum over labels and parts of `lacking ** 2 / count of the label`. If row i
    with labels S moves from part a to part b it falls by twice the sum over S of
    `(lacking_b - lacking_a - 1) / count`; labels that two swapped rows share only add to that.
    """
    weights = 1 / np.maximum(targets.sum(axis=0), 1)
    own = targets @ weights
    pull = targets @ (lacking * weights[:, None])
    by_label = targets.T.tocsr()
    for _ in range(MOST_EXCHANGES):
        gain, pair, rows = max(
            _best_swap(pull, own, parts, pair) for pair in combinations(range(pull.shape[1]), 2)
        )
        if gain <= 1e-9:
            return
        for row, source, target in zip(rows, pair, reversed(pair), strict=True):
            labels, _ = _entries(targets, np.array([row]))
            sharing, shared = _entries(by_label, labels)
            change = np.bincount(sharing, weights[shared], minlength=len(parts))
            pull[:, source] += change
            pull[:, target] -= change
            parts[row] = target


def _best_swap(
    pull: np.ndarray, own: np.ndarray, parts: np.ndarray, pair: tuple[int, int]
) -> tuple[float, tuple[int, int], tuple[int, int]]:
    """The gain of the best swap between two parts, and its rows."""
    one, other = pair
    towards = pull[:, other] - pull[:, one]
    leaving = np.where(parts == one, towards - own, -np.inf)
    coming = np.where(parts == other, -towards - own, -np.inf)
    rows = int(leaving.argmax()), int(coming.argmax())
    return float(leaving[rows[0]] + coming[rows[1]]), pair, rows


def _entries(matrix: sparse.csr_array, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns of all entries of these rows, one row after the other, and the row of each."""
    starts = matrix.indptr[rows]
    lengths = matrix.indptr[rows + 1] - starts
    ends = np.cumsum(lengths)
    places = np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)
    return matrix.indices[places], np.repeat(rows, lengths)


def _sizes(n_rows: int, shares: tuple[float, ...]) -> list[int]:
    """Whole numbers nearest to the shares that sum to `n_rows`, none of them 0."""
    if n_rows < len(shares):
        raise DataError(f"{n_rows} rows cannot be cut into {len(shares)} parts: add rows")
    exact = n_rows * np.asarray(shares)
    sizes = np.floor(exact).astype(int)
    short = n_rows - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:short]] += 1
    for empty in np.flatnonzero(sizes == 0):
        sizes[sizes.argmax()] -= 1
        sizes[empty] += 1
    return [int(size) for size in sizes]


def _stratified(
    targets: sparse.csr_array, rows: np.ndarray, shares: tuple[float, ...], seed: tuple[int, ...]
) -> tuple[np.ndarray, ...]:
    """Cut some of the rows; each part is sorted."""
    parts = stratify(targets[rows], shares, np.random.default_rng(seed))
    return tuple(rows[parts == part] for part in range(len(shares)))


def _default(data: MultiLabelData) -> tuple[str, bool]:
    info = known().get(data.name)
    # A user's own file may bear the name of a known data set; its size tells them apart.
    if info is not None and info.rows in (0, data.n_rows):
        return info.split, info.drop_unlabelled
    return ("published" if data.published else OWN_DATA_RULE), False


def _published(data: MultiLabelData, usable: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    missing = {"train", "test"} - data.published.keys()
    if missing:
        raise DataError(
            f"{data.name} has no published {' and '.join(sorted(missing))} part: "
            f"choose shares such as {OWN_DATA_RULE}"
        )
    parts = {part: np.sort(rows[usable[rows]]) for part, rows in data.published.items()}
    if "validation" in parts:
        return parts["train"], parts["validation"], parts["test"]
    shares = (1 - HELD_OUT, HELD_OUT)
    train, validation = _stratified(data.targets, parts["train"], shares, (seed, 0))
    return train, validation, parts["test"]


def _drawn(data: MultiLabelData, rule: str, rows: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    words = rule.split("/")
    percents = [int(word) for word in words if word.isdecimal()]
    if len(words) != 3 or len(percents) != 3 or sum(percents) != 100 or 0 in percents:
        raise ConfigError(
            f"the split rule must be auto, published or three whole percentages that sum to 100, "
            f"such as 60/20/20, not {rule!r}"
        )
    train, validation, test = (percent / 100 for percent in percents)
    return _stratified(data.targets, rows, (train, validation, test), (seed, 0))
