"""Matrix products by oneDNN: the same numbers, only where they are asked for."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from train import machine, products
from train.products import fast_products, replaced_products

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.library, "get_kernel")),
    reason="torch has no oneDNN, or none that can be asked for",
)
ROWS, WIDTH, COLUMNS = 96, 128, 112
ONEDNN = "mkldnn::_linear_pointwise"


def used(work):
    """What `work` returns, and whether oneDNN had a part in it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        found = work()
    return found, any(event.key == ONEDNN for event in profile.key_averages())


@pytest.mark.parametrize("left", ["plain", "transposed"])
@pytest.mark.parametrize("right", ["plain", "transposed", "strided"])
def test_large_products_are_those_of_float64(left, right):
    a = torch.randn(ROWS, WIDTH) if left == "plain" else torch.randn(WIDTH, ROWS).t()
    b = {
        "plain": torch.randn(WIDTH, COLUMNS),
        "transposed": torch.randn(COLUMNS, WIDTH).t(),
        "strided": torch.randn(WIDTH, 2 * COLUMNS)[:, ::2],
    }[right]
    with replaced_products():
        product, is_onednn = used(lambda: a @ b)
    assert is_onednn
    torch.testing.assert_close(product.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-4)


def test_layers_have_the_gradients_of_float64():
    torch.manual_seed(0)
    layer, x = nn.Linear(WIDTH, COLUMNS), torch.randn(3, ROWS, WIDTH, requires_grad=True)
    exact, exact_x = nn.Linear(WIDTH, COLUMNS).double(), x.detach().double().requires_grad_()
    exact.load_state_dict(layer.state_dict())
    functional.softplus(exact(exact_x)).square().sum().backward()
    with replaced_products():
        _, is_onednn = used(lambda: functional.softplus(layer(x)).square().sum().backward())
    assert is_onednn
    for found, expected in (
        (x.grad, exact_x.grad),
        (layer.weight.grad, exact.weight.grad),
        (layer.bias.grad, exact.bias.grad),
    ):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)


def test_all_others_are_as_ever():
    a, b = torch.randn(ROWS, WIDTH), torch.randn(WIDTH, COLUMNS)
    bias, matrix = torch.randn(COLUMNS), torch.randn(ROWS, COLUMNS)
    works = [
        lambda: a.double() @ b.double(),
        lambda: a.bfloat16() @ b.bfloat16(),
        lambda: a[:2] @ b,
        lambda: a[:0] @ b,
        lambda: torch.addmm(bias, a, b, beta=0.5),
        lambda: torch.addmm(bias, a, b, alpha=2),
        lambda: torch.addmm(matrix, a, b),
        lambda: torch.addmm(bias[:1], a, b),
    ]
    for work in works:
        expected = work()
        with replaced_products():
            found, is_onednn = used(work)
        assert not is_onednn
        assert torch.equal(found, expected)


def test_wrong_shapes_and_types_are_refused_as_ever():
    a = torch.randn(ROWS, WIDTH)
    with replaced_products():
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            a @ a
        with pytest.raises(RuntimeError, match="same dtype"):
            a @ torch.randn(WIDTH, COLUMNS).double()


def test_it_ends():
    a, b = torch.randn(ROWS, WIDTH), torch.randn(WIDTH, COLUMNS)
    with pytest.raises(KeyError), replaced_products():
        raise KeyError
    assert not used(lambda: a @ b)[1]


@pytest.mark.parametrize(("vendor", "is_onednn"), [("AuthenticAMD", True), ("GenuineIntel", False)])
def test_only_processors_that_gain_by_it_do_it(monkeypatch, tmp_path, vendor, is_onednn):
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: Some\n")
    monkeypatch.setattr(machine, "CPU_INFO", info)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    a, b = torch.randn(ROWS, WIDTH), torch.randn(WIDTH, COLUMNS)
    if not torch.backends.mkl.is_available():
        is_onednn = False
    assert products.are_slow() == is_onednn
    with fast_products():
        assert used(lambda: a @ b)[1] == is_onednn
