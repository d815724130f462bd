"""The losses between rows, each against loops written from its formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import normalize

from train.losses import (
    Members,
    attraction_and_repulsion,
    jaccard_contrastive,
    jscl,
    msc,
    mulcon,
    prototype_members,
    shared_label_contrastive,
)

TAU = 0.3
SIZE, LABELS = 3, 4


def drawn(count, share=0.4, seed=0):
    generator = torch.Generator().manual_seed(100 * seed + count)
    z = normalize(torch.randn(count, SIZE, generator=generator, dtype=torch.float64), dim=1)
    y = (torch.rand(count, LABELS, generator=generator) < share).double()
    return Members(z, y)


def drawn_prototypes(seed=7):
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(LABELS, SIZE, generator=generator, dtype=torch.float64)


def sets(y):
    return [{j for j, value in enumerate(row) if value} for row in y.tolist()]


def dot(a, b):
    return sum(p * q for p, q in zip(a, b, strict=True))


def unit(vector):
    length = math.sqrt(dot(vector, vector))
    return [value / length for value in vector]


def index(a, b):
    return len(a & b) / len(a | b) if a | b else 0.0


def slow_base(rows, others, *, by_anchors=False):
    """-(1/|B|) sum_i 1/N(i) sum_{k in A(i)} J(i,k) log[e^{z_i.z_k/tau} / sum_{m in A(i)} ...]."""
    z = [*rows.z.tolist(), *others.z.tolist()]
    y = [*sets(rows.y), *sets(others.y)]
    total, anchors = 0.0, 0
    for i in range(len(rows.z)):
        members = [k for k in range(len(z)) if k != i]
        n = sum(index(y[i], y[k]) for k in members)
        if n == 0:
            continue
        anchors += 1
        denominator = sum(math.exp(dot(z[i], z[m]) / TAU) for m in members)
        for k in members:
            log = math.log(math.exp(dot(z[i], z[k]) / TAU) / denominator)
            total -= index(y[i], y[k]) * log / n
    return total / (anchors or 1) if by_anchors else total / len(rows.z)


def slow_msc(rows, queue, prototypes, beta):
    """l_i = -(1/|y_i|) sum_{j in y_i} 1/N(i,j) sum_{k in P(j,i) u {c_j}} f(i,k) log[...]."""
    z = [*rows.z.tolist(), *queue.z.tolist()]
    y = [*sets(rows.y), *sets(queue.y)]
    c = [unit(prototype) for prototype in prototypes.tolist()]
    total = 0.0
    for i in range(len(rows.z)):
        others = [k for k in range(len(z)) if k != i]
        denominator = sum(beta * math.exp(dot(z[i], z[m]) / TAU) for m in others)
        denominator += sum(math.exp(dot(z[i], m) / TAU) for m in c)
        for j in y[i]:
            terms = [(1.0, c[j])]
            terms += [(1 / len(y[i] | y[k]), z[k]) for k in others if j in y[k]]
            n = sum(f for f, _ in terms)
            for f, member in terms:
                log = math.log(math.exp(dot(z[i], member) / TAU) / denominator)
                total -= f * log / n / len(y[i])
    return total / len(rows.z)


def slow_jscl(rows):
    """-(1/|B|) sum_i (1/|B|) sum_k log[J(i,k) e^{..} / sum e^{..}], J = 0 left out."""
    z, y, n = rows.z.tolist(), sets(rows.y), len(rows.z)
    total = 0.0
    for i in range(n):
        denominator = sum(math.exp(dot(z[i], z[m]) / TAU) for m in range(n) if m != i)
        for k in range(n):
            j = index(y[i], y[k])
            if k != i and j > 0:
                total -= math.log(j * math.exp(dot(z[i], z[k]) / TAU) / denominator)
    return total / n / n


def slow_weighted_jscl(rows):
    """-(1/|B|) sum_i 1/(|B|-1) sum_k log[e^{..} / sum over m of J(i,m) e^{..}]."""
    z, y, n = rows.z.tolist(), sets(rows.y), len(rows.z)
    total = 0.0
    for i in range(n):
        others = [m for m in range(n) if m != i]
        denominator = sum(index(y[i], y[m]) * math.exp(dot(z[i], z[m]) / TAU) for m in others)
        if denominator > 0:
            for k in others:
                total -= math.log(math.exp(dot(z[i], z[k]) / TAU) / denominator) / len(others)
    return total / n


def slow_shared(rows):
    """As the base loss with weights <y_i, y_k> and similarities -|z_i - z_k|."""
    z, y, n = rows.z.tolist(), sets(rows.y), len(rows.z)
    total = 0.0
    for i in range(n):
        others = [k for k in range(n) if k != i]
        c = sum(len(y[i] & y[k]) for k in others)
        denominator = sum(math.exp(-math.dist(z[i], z[m]) / TAU) for m in others)
        for k in others:
            if y[i] & y[k]:
                log = math.log(math.exp(-math.dist(z[i], z[k]) / TAU) / denominator)
                total -= len(y[i] & y[k]) * log / c
    return total / n


def slow_mulcon(z, labels, present):
    """-(1/|I|) sum over I of 1/|P| sum over P of log[e^{a.p/tau} / sum over I without a]."""
    z, labels = z.tolist(), labels.tolist()
    members = [n for n, is_present in enumerate(present.tolist()) if is_present]
    total = 0.0
    for a in members:
        likes = [p for p in members if p != a and labels[p] == labels[a]]
        denominator = sum(math.exp(dot(z[a], z[m]) / TAU) for m in members if m != a)
        for p in likes:
            total -= math.log(math.exp(dot(z[a], z[p]) / TAU) / denominator) / len(likes)
    return total / max(1, len(members))


def same(value, expected):
    assert value.dtype == torch.float64
    assert value.item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("queued", [0, 1, 6])
@pytest.mark.parametrize("share", [0.0, 0.15, 0.5, 1.0])
class TestEqualsTheFormula:
    def test_base(self, count, queued, share):
        rows, queue = drawn(count, share), drawn(queued, share, seed=1)
        for by_anchors in (False, True):
            value = jaccard_contrastive(rows, queue, temperature=TAU, by_anchors=by_anchors)
            same(value, slow_base(rows, queue, by_anchors=by_anchors))

    def test_queue_with_prototypes(self, count, queued, share):
        rows, queue = drawn(count, share), drawn(queued, share, seed=1)
        prototypes = drawn_prototypes()
        # As the text has it: prototype j has J = 1/|y_i| for rows with label j, else 0.
        value = jaccard_contrastive(rows, queue, prototype_members(prototypes), temperature=TAU)
        others = Members(
            torch.cat([queue.z, torch.tensor([unit(c) for c in prototypes.tolist()]).double()]),
            torch.cat([queue.y, torch.eye(LABELS)]),
        )
        assert value.item() == pytest.approx(slow_base(rows, others), rel=1e-6)

    @pytest.mark.parametrize("beta", [0.1, 1.0])
    def test_msc(self, count, queued, share, beta):
        rows, queue = drawn(count, share), drawn(queued, share, seed=1)
        prototypes = drawn_prototypes()
        value = msc(rows, queue, prototype_members(prototypes), temperature=TAU, row_weight=beta)
        same(value, slow_msc(rows, queue, prototypes, beta))


@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("share", [0.0, 0.15, 0.5, 1.0])
class TestEqualsTheFormulaWithoutQueue:
    def test_base_alone(self, count, share):
        rows = drawn(count, share)
        same(jaccard_contrastive(rows, temperature=TAU), slow_base(rows, drawn(0)))

    def test_jscl(self, count, share):
        rows = drawn(count, share)
        same(jscl(rows, temperature=TAU), slow_jscl(rows))
        weighted = jscl(rows, temperature=TAU, weigh_denominator=True)
        same(weighted, slow_weighted_jscl(rows))

    def test_shared_labels(self, count, share):
        rows = drawn(count, share)
        same(shared_label_contrastive(rows, temperature=TAU), slow_shared(rows))

    def test_mulcon(self, count, share):
        vectors = drawn(3 * count).z
        generator = torch.Generator().manual_seed(count)
        labels = torch.randint(3, (3 * count,), generator=generator)
        present = torch.rand(3 * count, generator=generator) < share
        same(
            mulcon(vectors, labels, present, temperature=TAU), slow_mulcon(vectors, labels, present)
        )


def test_msc_with_an_empty_queue_is_the_released_form():
    """That program adds a row itself to N(i, j), takes it out again and adds the prototype."""
    rows, prototypes, beta = drawn(8), drawn_prototypes(), 0.1
    rows.y[rows.y.sum(1) == 0, 0] = 1  # it divides by zero for rows without labels
    z, y = rows.z, rows.y
    c = prototypes / prototypes.norm(dim=1, keepdim=True)
    shared = y[:, None, :] * y[None, :, :]  # (batch, batch, labels)
    either = ((y[:, None, :] + y[None, :, :]) > 0).sum(2, keepdim=True)
    n = (shared / either).sum(1) + y * (1 - 1 / y.sum(1, keepdim=True))  # (batch, labels)
    by_rows = (shared / either / n.where(n > 0, 1)[:, None]).sum(2)
    by_prototypes = y / n.where(n > 0, 1)
    not_itself = 1 - torch.eye(len(z), dtype=z.dtype)
    exponentials = (torch.cat([z @ z.T, z @ c.T], 1) / TAU).exp()
    counted = torch.cat([beta * not_itself, torch.ones(len(z), LABELS)], 1)
    logs = (exponentials / (exponentials * counted).sum(1, keepdim=True)).log()
    weights = torch.cat([by_rows * not_itself, by_prototypes], 1)
    expected = (-(logs * weights).sum(1) / y.sum(1)).mean()
    same(
        msc(rows, drawn(0), prototype_members(prototypes), temperature=TAU, row_weight=beta),
        expected.item(),
    )


LOSSES = {
    "base": lambda rows, queue, c: jaccard_contrastive(rows, temperature=TAU),
    "anchors": lambda rows, queue, c: jaccard_contrastive(rows, temperature=TAU, by_anchors=True),
    "queue": lambda rows, queue, c: jaccard_contrastive(rows, queue, temperature=TAU),
    "prototypes": lambda rows, queue, c: jaccard_contrastive(
        rows, queue, prototype_members(c), temperature=TAU
    ),
    "msc": lambda rows, queue, c: msc(rows, queue, prototype_members(c), temperature=TAU),
    "jscl": lambda rows, queue, c: jscl(rows, temperature=TAU),
    "weighted-jscl": lambda rows, queue, c: jscl(rows, temperature=TAU, weigh_denominator=True),
    "shared": lambda rows, queue, c: shared_label_contrastive(rows, temperature=TAU),
    "mulcon": lambda rows, queue, c: mulcon(
        rows.z, rows.y.argmax(1), rows.y.sum(1) > 0, temperature=TAU
    ),
}
every_loss = pytest.mark.parametrize("name", LOSSES)


@every_loss
@pytest.mark.parametrize("queued", [0, 4])
def test_gradients_are_those_of_finite_differences(name, queued):
    rows, queue, prototypes = drawn(5), drawn(queued, seed=1), drawn_prototypes()
    rows.y[0], rows.y[1] = 0, 1

    def loss(raw, c):
        return LOSSES[name](Members(normalize(raw, dim=1), rows.y), queue, c)

    raw, c = (2 * rows.z).requires_grad_(), prototypes.requires_grad_()
    assert torch.autograd.gradcheck(loss, (raw, c))


@every_loss
@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_batch_with_no_or_all_labels_has_finite_gradients_in_float32(name, count, share):
    rows, prototypes = drawn(count, share), drawn_prototypes().float().requires_grad_()
    raw = rows.z.float().requires_grad_()
    loss = LOSSES[name](
        Members(normalize(raw, dim=1), rows.y.float()),
        Members(torch.zeros(0, SIZE), torch.zeros(0, LABELS)),
        prototypes,
    )
    (loss + 0 * raw.sum() + 0 * prototypes.sum()).backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(raw.grad).all()
    assert torch.isfinite(prototypes.grad).all()
    if share == 0:
        assert loss.item() == 0
        assert not raw.grad.any()


@every_loss
def test_equal_rows_have_finite_gradients_in_float32(name):
    rows, queue = drawn(6), drawn(4, seed=1)
    raw = torch.ones(6, SIZE, requires_grad=True)
    members = Members(normalize(raw, dim=1), rows.y.float())
    prototypes = drawn_prototypes().float()
    LOSSES[name](members, Members(queue.z.float(), queue.y.float()), prototypes).backward()
    assert torch.isfinite(raw.grad).all()


@every_loss
def test_the_order_of_rows_does_not_matter(name):
    rows, queue, prototypes = drawn(7), drawn(4, seed=1), drawn_prototypes()
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    value = LOSSES[name](rows, queue, prototypes)
    turned = LOSSES[name](Members(rows.z[order], rows.y[order]), queue, prototypes)
    same(turned, value.item())


def test_the_weight_inside_the_logarithm_has_no_gradient():
    rows = drawn(8, 0.6)
    attracts = (rows.y @ rows.y.T > 0).fill_diagonal_(False).double()
    z = rows.z.clone().requires_grad_()
    jscl(Members(z, rows.y), temperature=TAU).backward()
    free = rows.z.clone().requires_grad_()
    s = (free @ free.T / TAU).masked_fill(torch.eye(8, dtype=torch.bool), -1e9)
    (-(s.log_softmax(1) * attracts).sum() / 64).backward()
    torch.testing.assert_close(z.grad, free.grad)


def test_attraction_and_repulsion_are_means_over_pairs():
    rows = drawn(7)
    y, z = sets(rows.y), rows.z.tolist()
    pairs = [(i, k) for i in range(7) for k in range(7) if i != k]
    alike = [dot(z[i], z[k]) for i, k in pairs if y[i] & y[k]]
    unlike = [dot(z[i], z[k]) for i, k in pairs if not y[i] & y[k]]
    attraction, repulsion = attraction_and_repulsion(rows)
    same(attraction, -sum(alike) / len(alike))
    same(repulsion, sum(unlike) / len(unlike))


def test_attraction_and_repulsion_without_pairs_are_zero():
    attraction, repulsion = attraction_and_repulsion(drawn(1))
    assert (attraction.item(), repulsion.item()) == (0, 0)


def test_tight_groups_of_one_label_reach_the_bounds():
    z = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0]], dtype=torch.float64)
    y = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]], dtype=torch.float64)
    assert [value.item() for value in attraction_and_repulsion(Members(z, y))] == [-1, -1]


def train_mulcon(cross_entropy_weight):
    """Train label vectors z_i^k = unit(f(x_i, k)) on a toy; return their variance across rows."""
    torch.manual_seed(0)
    x = torch.randn(64, 6)
    y = (x @ torch.randn(6, LABELS) > 0).float()
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, LABELS * 8)
    )
    read = torch.nn.Parameter(torch.randn(LABELS, 8))
    optimizer = torch.optim.Adam([*net.parameters(), read], lr=0.01)
    labels = torch.arange(LABELS).repeat(64)
    for _ in range(400):
        z = normalize(net(x).view(64, LABELS, 8), dim=2)
        loss = mulcon(z.flatten(0, 1), labels, y.flatten() > 0, temperature=TAU)
        logits = 5 * (z * read).sum(2)
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, y)
        loss = loss + cross_entropy_weight * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    present = z.detach()[:, 0][y[:, 0] > 0], z.detach()[:, 0]
    return [vectors.var(0).sum().item() for vectors in present]


def test_mulcon_alone_collapses_to_vectors_that_do_not_depend_on_the_row():
    """S2, App. F: without cross-entropy the least loss is one vector a label, whatever the row."""
    with_label, every_row = train_mulcon(cross_entropy_weight=0.0)
    assert with_label < 0.01
    assert every_row < 0.1
    _, kept = train_mulcon(cross_entropy_weight=3.0)
    assert kept > 0.4
