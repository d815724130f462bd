import numpy as np
import pytest
import torch
from scipy import stats

from train.losses import bernoulli_samples, log_noise_probability
from train.losses import samples as module
from train.losses.samples import LabelNoise, SparseSamples

ROWS, SETS, LABELS = 5, 7, 11


def some_sets(seed=0, share=0.2, shape=(ROWS, SETS, LABELS)):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator) < share).double()


EDGES = {
    "some": some_sets(),
    "none": torch.zeros(ROWS, SETS, LABELS, dtype=torch.float64),
    "all": torch.ones(ROWS, SETS, LABELS, dtype=torch.float64),
    "one label": some_sets(1, 0.5, (ROWS, SETS, 1)),
    "one set": some_sets(2, 0.3, (ROWS, 1, LABELS)),
    "one row": some_sets(3, 0.3, (1, SETS, LABELS)),
    "few of many": some_sets(4, 0.01, (ROWS, 3, 300)),
    "one one": torch.eye(LABELS).double().view(1, LABELS, LABELS)[:, 4:5],
}


@pytest.fixture(params=EDGES.values(), ids=EDGES.keys())
def dense(request):
    return request.param


def leaf(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def assert_same_values_and_gradients(ours, theirs, leaves):
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(9)).double()
    for a, b in zip(
        torch.autograd.grad((ours * weights).sum(), leaves),
        torch.autograd.grad((theirs * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_dense_form_comes_back(dense):
    assert torch.equal(SparseSamples.of_dense(dense).to_dense(torch.float64), dense)


def test_ones_may_come_in_any_order(dense):
    row, position, label = dense.nonzero(as_tuple=True)
    shuffled = torch.randperm(len(row), generator=torch.Generator().manual_seed(0))
    cells = (row * dense.shape[2] + label)[shuffled]
    sets = SparseSamples.of_ones(tuple(dense.shape), cells, position[shuffled])
    assert torch.equal(sets.to_dense(torch.float64), dense)


def test_sum_over_labels_is_the_product(dense):
    table = leaf(dense.shape[2], 4)
    ours = SparseSamples.of_dense(dense).sum_over_labels(table)
    assert_same_values_and_gradients(ours, dense @ table, [table])


def test_sum_over_cells_is_the_product(dense):
    values = leaf(dense.shape[0], dense.shape[2])
    ours = SparseSamples.of_dense(dense).sum_over_cells(values)
    assert_same_values_and_gradients(ours, (dense * values.unsqueeze(1)).sum(-1), [values])


def test_sum_of_products_is_the_product(dense):
    hidden, table = leaf(dense.shape[0], 6), leaf(dense.shape[2], 6, seed=1)
    ours = SparseSamples.of_dense(dense).sum_of_products(hidden, table)
    theirs = torch.einsum("rsl,ld,rd->rs", dense, table, hidden)
    assert_same_values_and_gradients(ours, theirs, [hidden, table])


def test_examples_take_both_ways_of_sum_of_products():
    shares = [y.sum() / (y.shape[0] * y.shape[2]) for y in EDGES.values()]
    assert min(share for share in shares if share > 0) < 0.25 < max(shares)


@pytest.mark.parametrize("share", [0.005, 0.3])
def test_gradients_agree_with_differences(share):
    sets = SparseSamples.of_dense(some_sets(5, share, (3, 2, 70)))
    hidden, table = leaf(3, 2), leaf(70, 2, seed=1)
    assert torch.autograd.gradcheck(sets.sum_over_labels, (table,))
    assert torch.autograd.gradcheck(sets.sum_of_products, (hidden, table))


def drawn(logits, count, seed=0):
    """Sets of the sampler as a dense boolean array."""
    generator = torch.Generator().manual_seed(seed)
    cells, positions = LabelNoise(logits).draw(count, generator)
    on = np.zeros((logits.numel(), count), dtype=bool)
    on[cells.numpy(), positions.numpy()] = True
    assert on.sum() == len(cells), "none may be reported twice"
    return on.reshape(*logits.shape, count)


PROBABILITIES = torch.tensor(
    [[0.001, 0.02, 0.1, 0.3, 0.5, 0.7, 0.95, 0.999], [0.5, 0.0004, 0.2, 0.9, 0.05, 0.01, 0.6, 0.4]]
).double()


def test_every_label_is_on_as_often_as_its_probability_says():
    count = 100_000
    on = drawn(PROBABILITIES.logit(), count).sum(-1).ravel()
    p = [
        stats.binomtest(int(k), count, q).pvalue
        for k, q in zip(on, PROBABILITIES.flatten().tolist(), strict=True)
    ]
    assert min(p) > 0.001
    assert stats.kstest(p, "uniform").pvalue > 0.001


def test_float32_logits_give_the_same_distribution():
    count = 100_000
    on = drawn(PROBABILITIES.logit().float(), count, seed=1).sum(-1)
    q = PROBABILITIES.numpy()
    z = (on - count * q) / np.sqrt(count * q * (1 - q))
    assert np.abs(z).max() < 4


def test_labels_are_independent():
    """All 16 patterns of four labels occur as often as the product of probabilities says."""
    q = torch.tensor([[0.3, 0.6, 0.1, 0.45]]).double()
    count = 50_000
    on = drawn(q.logit(), count)[0]
    seen = np.bincount((on * np.array([[1], [2], [4], [8]])).sum(0), minlength=16)
    patterns = (np.arange(16)[:, None] >> np.arange(4)) & 1
    expected = np.where(patterns, q.numpy(), 1 - q.numpy()).prod(1) * count
    assert stats.chisquare(seen, expected).pvalue > 0.001


def test_sets_of_a_row_are_independent():
    """The number of sets with a label is binomial, and all patterns of sets are as likely."""
    q, rows, count = 0.2, 30_000, 4
    on = drawn(torch.full((rows, 1), q).double().logit(), count)[:, 0]
    expected = stats.binom(count, q).pmf(np.arange(count + 1)) * rows
    assert stats.chisquare(np.bincount(on.sum(1), minlength=5), expected).pvalue > 0.001
    patterns = np.bincount((on * 2 ** np.arange(count)).sum(1), minlength=16)
    ones = ((np.arange(16)[:, None] >> np.arange(count)) & 1).sum(1)
    chances = q**ones * (1 - q) ** (count - ones)
    assert stats.chisquare(patterns, chances * rows).pvalue > 0.001


def test_rows_are_independent_and_use_their_own_probabilities():
    count = 50_000
    on = drawn(torch.tensor([[0.2], [0.7]]).double().logit(), count)[:, 0]
    both = np.bincount(on[0] + 2 * on[1], minlength=4)
    assert stats.chisquare(both, np.array([0.24, 0.06, 0.56, 0.14]) * count).pvalue > 0.001


def test_agrees_with_dense_sampling():
    """The size of a set has the same distribution as with a random number a label and set."""
    logits = torch.randn(1, 200, generator=torch.Generator().manual_seed(0)).double() * 2 - 4
    generator = torch.Generator().manual_seed(1)
    sizes = bernoulli_samples(logits.sigmoid(), 5_000, generator).sum(-1).numpy().ravel()
    ours = drawn(logits, 5_000, seed=2).sum(1).ravel()
    top = int(np.quantile(sizes, 0.99))
    table = [np.bincount(np.minimum(s, top).astype(int), minlength=top + 1) for s in (ours, sizes)]
    table = np.array(table)[:, np.sum(table, 0) > 10]
    assert stats.chi2_contingency(table).pvalue > 0.001


def test_impossible_and_certain_labels():
    infinity = float("inf")
    logits = torch.tensor([[-infinity, 0.0, infinity], [infinity, -infinity, -infinity]]).double()
    on = drawn(logits, 500)
    assert not on[0, 0].any()
    assert 150 < on[0, 1].sum() < 350
    assert on[0, 2].all()
    assert on[1, 0].all()
    assert not on[1, 1:].any()


@pytest.mark.parametrize("logit", [-float("inf"), -1e4])
def test_nothing_is_drawn_from_nothing(logit):
    cells, positions = LabelNoise(torch.full((3, 4), logit)).draw(5)
    assert cells.numel() == positions.numel() == 0


def test_points_stay_before_the_end(monkeypatch):
    """A last gap of nothing would put the last point on the end itself."""
    rand = torch.rand

    def without_last_gap(*args, **options):
        noise = rand(*args, **options)
        noise[-1] = 0
        return noise

    monkeypatch.setattr(torch, "rand", without_last_gap)
    generator = torch.Generator().manual_seed(0)
    for length in torch.linspace(1, 9, 50).double():
        places = module._points(length, 20, generator)
        assert places[-1] < length
        assert (places.diff() >= 0).all()
        assert (places >= 0).all()


def test_same_seed_same_sets_and_other_seed_other_sets():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0)) - 3
    first, again, other = (drawn(logits, 20, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_wide_and_narrow_indices_give_the_same_sets(monkeypatch):
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0)) - 3
    narrow = LabelNoise(logits).draw(20, torch.Generator().manual_seed(1))
    monkeypatch.setattr(module, "_index_type", lambda end: torch.int64)
    wide = LabelNoise(logits).draw(20, torch.Generator().manual_seed(1))
    assert {t.dtype for t in narrow} == {torch.int32}
    assert all(torch.equal(a.long(), b) for a, b in zip(narrow, wide, strict=True))


@pytest.mark.parametrize(("end", "index_type"), [(2**31, torch.int32), (2**31 + 1, torch.int64)])
def test_indices_are_narrow_while_they_fit(end, index_type):
    assert module._index_type(end) == index_type
    assert torch.iinfo(index_type).max >= end - 1


def test_no_numbers_are_drawn_densely():
    logits = torch.full((2, 40), float("nan"))
    assert isinstance(LabelNoise(logits).candidates(torch.zeros(2, 40), 3), torch.Tensor)


@pytest.mark.parametrize("count", [1, 6])
def test_truth_comes_first(count):
    truth = some_sets(6, 0.1, (4, 40)).float()
    truth[2] = 0
    candidates = LabelNoise(torch.full((4, 40), -4.0)).candidates(truth, count)
    assert isinstance(candidates, SparseSamples)
    y = candidates.to_dense(torch.float32)
    assert y.shape == (4, 1 + count, 40)
    assert torch.equal(y[:, 0], truth)
    assert set(y.unique().tolist()) <= {0.0, 1.0}


def test_drawn_sets_stand_behind_the_truth_of_their_row():
    infinity = float("inf")
    logits = torch.full((3, 40), -infinity)
    logits[torch.arange(3), torch.tensor([5, 0, 39])] = infinity
    candidates = LabelNoise(logits).candidates(torch.zeros(3, 40), 2)
    dense = (
        candidates if isinstance(candidates, torch.Tensor) else candidates.to_dense(torch.float32)
    )
    assert torch.equal(dense[:, 0], torch.zeros(3, 40))
    assert torch.equal(dense[:, 1], (logits > 0).float())
    assert torch.equal(dense[:, 2], (logits > 0).float())


@pytest.mark.parametrize(("logit", "form"), [(0.0, torch.Tensor), (-5.0, SparseSamples)])
def test_density_decides_the_form(logit, form):
    candidates = LabelNoise(torch.full((3, 40), logit)).candidates(torch.zeros(3, 40), 4)
    assert isinstance(candidates, form)
    assert tuple(candidates.shape) == (3, 5, 40)


def test_log_probability_is_that_of_the_dense_form(dense):
    logits = leaf(dense.shape[0], dense.shape[2]).detach() * 3
    # Beyond the cut, both ways.
    logits[0, 0], logits[-1, -1] = 150.0, -150.0
    expected = log_noise_probability(logits, dense)
    noise = LabelNoise(logits)
    for y in (dense, SparseSamples.of_dense(dense)):
        torch.testing.assert_close(noise.log_probability(y), expected, rtol=1e-12, atol=1e-12)


def test_log_probability_by_its_formula():
    q = torch.tensor([[0.1, 0.7, 0.4]]).double()
    y = SparseSamples.of_dense(torch.tensor([[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]))
    expected = torch.tensor([[0.1 * 0.3 * 0.4, 0.9 * 0.3 * 0.6]]).double().log()
    torch.testing.assert_close(LabelNoise(q.logit()).log_probability(y), expected)
