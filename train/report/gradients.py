"""What an energy network believes about pairs of labels: gradients of its joint term.

The joint term of the score is g(y) = v . softplus(M^T y + c), here with M as (labels, units). Then

    dg/dy_k        = sum_u v_u M_ku sigma(z_u)              z = M^T y + c
    d2g/dy_i dy_k  = sum_u v_u M_iu M_ku sigma'(z_u)

If label i implies label k, a larger y_i should raise the gradient at k: the mixed derivative is
positive. For unrelated labels it should be near zero. For cross-entropy it is zero for every pair:
no label feels another. (Lee et al., NeurIPS 2022, App. G; signs are those of the score s = -E.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit
from torch import Tensor

from train.checkpoint import Checkpoint

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pairs = NDArray[np.int64]
"""(pairs, 2): labels i and k."""

DRAWS = 4000
MIN_ROWS = 10
"""Training rows that a label needs before it can be expected to have taught anything."""
IMPLIED_SHARE, IMPLIED_LIFT = 0.95, 1.5
UNRELATED_LIFT = (0.8, 1.25)
MIN_EXPECTED = 5
"""Rows that two labels of an unrelated pair would share if they were independent."""
MOST_PAIRS = 5000
RESAMPLES = 1000


@dataclass(frozen=True)
class JointTerm:
    """The part of an energy network that sees the whole label set."""

    matrix: Floats
    """M, (labels, units)."""
    bias: Floats
    weight: Floats

    def slope(self, y: Floats) -> Floats:
        """sigma(z) of every unit, (draws, units), for label sets y (draws, labels)."""
        return np.asarray(expit(y @ self.matrix + self.bias))

    def gradient(self, y: Floats, label: int) -> Floats:
        """dg/dy_k of one label k at every y: (draws,)."""
        return np.asarray(self.slope(y) @ (self.weight * self.matrix[label]))

    def mean_interaction(self, y: Floats, labels: Ints) -> Floats:
        """d2g/dy_i dy_k of all pairs of the labels given, mean over y: (labels given,) * 2."""
        slope = self.slope(y)
        strength = self.weight * (slope * (1 - slope)).mean(axis=0)  # (units,)
        chosen = self.matrix[labels]
        return np.asarray((chosen * strength) @ chosen.T)


def joint_term(checkpoint: Checkpoint) -> JointTerm | None:
    """The joint term of the energy network that predicts or has taught; None where none did."""
    for weights, prefix in ((checkpoint.weights, "energy_net."), (checkpoint.teacher, "")):
        if f"{prefix}joint_weight" in weights:
            return JointTerm(
                _array(weights, f"{prefix}joint"),
                _array(weights, f"{prefix}joint_bias"),
                _array(weights, f"{prefix}joint_weight"),
            )
    return None


def _array(weights: Mapping[str, Tensor], name: str) -> Floats:
    return np.asarray(weights[name].double().numpy())


def random_label_sets(n_labels: int) -> Floats:
    """Draw y ~ U(0, 1)^labels, (DRAWS, labels); always the same."""
    return np.random.default_rng(0).random((DRAWS, n_labels))


@dataclass(frozen=True)
class LabelPairs:
    """Ordered pairs (i, k) that should and should not interact, best supported first."""

    labels: Ints
    """The labels with enough training rows; pairs are numbers of places in this list."""
    implied: Pairs
    unrelated: Pairs
    rule: str
    """How they were found, for the reader."""


def find_pairs(names: Sequence[str], targets: sparse.csr_array) -> LabelPairs:
    """Find pairs by the taxonomy that the names spell out, else by what occurs together.

    targets: (training rows, labels).
    """
    counts = np.asarray(targets.sum(axis=0)).ravel()
    # What every row has, such as the root of a taxonomy, tells nothing about any other label.
    labels = np.flatnonzero((counts >= MIN_ROWS) & (counts < targets.shape[0]))
    chosen = targets[:, labels].astype(np.int64)
    together = (chosen.T @ chosen).toarray()
    counts = counts[labels].astype(np.float64)
    expected = np.outer(counts, counts) / targets.shape[0]
    lift = together / expected
    other = ~np.eye(len(labels), dtype=bool)
    unrelated = (lift >= UNRELATED_LIFT[0]) & (lift <= UNRELATED_LIFT[1])
    unrelated &= np.triu(expected >= MIN_EXPECTED, k=1)  # either order says the same
    paths = [names[int(label)] for label in labels]
    if is_taxonomy(names):
        implied = np.array([[a.startswith(f"{b}/") for b in paths] for a in paths], dtype=bool)
        branch = np.array([path.partition("/")[0] for path in paths])
        unrelated &= branch[:, None] != branch[None, :]
        rule = "implied: a label and its ancestors in the taxonomy of the names"
        where = "in different top-level branches, "
    else:
        implied = (together / counts[:, None] >= IMPLIED_SHARE) & (lift >= IMPLIED_LIFT) & other
        rule = f"implied: at least {IMPLIED_SHARE:.0%} of the training rows of i have k too, "
        rule += f"{IMPLIED_LIFT} times what chance gives or more"
        where = ""
    rule += f"; unrelated: {where}together as often as chance gives, {UNRELATED_LIFT[0]} to "
    rule += f"{UNRELATED_LIFT[1]} times; only labels with {MIN_ROWS} training rows or more"
    return LabelPairs(labels, _ranked(implied, together), _ranked(unrelated, expected), rule)


def is_taxonomy(names: Sequence[str]) -> bool:
    """Whether names are paths such as 01/03/16, all of whose parents are labels too."""
    known = set(names)
    below = [name for name in names if "/" in name]
    return bool(below) and all(name.rpartition("/")[0] in known for name in below)


def _ranked(mask: NDArray[np.bool_], support: NDArray[np.number]) -> Pairs:
    pairs = np.argwhere(mask)
    order = np.argsort(-support[pairs[:, 0], pairs[:, 1]], kind="stable")
    return np.asarray(pairs[order[:MOST_PAIRS]], dtype=np.int64)


@dataclass(frozen=True)
class Summary:
    """The mean mixed derivatives of implied pairs against those of unrelated ones."""

    implied: Floats
    unrelated: Floats
    interval: tuple[float, float]
    """Of the difference of means: 95 %, by bootstrap over pairs."""
    p_value: float
    """One-sided, by permuting which label is which: pairs that share a label stay dependent."""

    @property
    def difference(self) -> float:
        """Mean of the implied pairs minus mean of the unrelated ones."""
        return float(self.implied.mean() - self.unrelated.mean())


def summarise(term: JointTerm, pairs: LabelPairs) -> Summary | None:
    """Compare both kinds of pairs; None where there are too few of either."""
    if min(len(pairs.implied), len(pairs.unrelated)) < 2:
        return None
    y = random_label_sets(len(term.matrix))
    interaction = term.mean_interaction(y, pairs.labels)
    implied, unrelated = (interaction[p[:, 0], p[:, 1]] for p in (pairs.implied, pairs.unrelated))
    rng = np.random.default_rng(1)
    draws = [
        rng.choice(implied, len(implied)).mean() - rng.choice(unrelated, len(unrelated)).mean()
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    observed = implied.mean() - unrelated.mean()
    as_high = 0
    for _ in range(RESAMPLES):
        turn = rng.permutation(len(pairs.labels))
        i, u = turn[pairs.implied], turn[pairs.unrelated]
        by_chance = interaction[i[:, 0], i[:, 1]].mean() - interaction[u[:, 0], u[:, 1]].mean()
        as_high += by_chance >= observed
    p_value = (1 + as_high) / (1 + RESAMPLES)
    return Summary(implied, unrelated, (float(low), float(high)), p_value)
