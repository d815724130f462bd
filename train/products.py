"""Products of float32 matrices by oneDNN, where torch's own leave half of a CPU idle.

torch multiplies by MKL, which keeps to AVX2 on processors that Intel did not make. With AVX-512,
as AMD's have since Zen 4, oneDNN, which is part of torch, takes half the time for the same product.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor

from train.machine import is_amd

# Multiplications below which the way through Python costs more than is won.
LEAST_WORK = 2**20

Keys: TypeAlias = Any  # torch's dispatch keys


def are_slow() -> bool:
    """Whether torch's products do not use all of this processor, and it has others."""
    return (
        is_amd()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.library, "get_kernel")  # from torch 2.9 on
    )


@contextmanager
def fast_products() -> Iterator[None]:
    """Multiply by oneDNN meanwhile, in gradients too, where that is faster."""
    if not are_slow():
        yield
        return
    with replaced_products():
        yield


@contextmanager
def replaced_products() -> Iterator[None]:
    """Multiply large float32 matrices by oneDNN meanwhile, and all others as ever."""
    by_onednn: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
    own_mm = torch.library.get_kernel("aten::mm", "CPU")
    own_addmm = torch.library.get_kernel("aten::addmm", "CPU")

    def mm(keys: Keys, a: Tensor, b: Tensor) -> Tensor:
        if not _is_large(a, b):
            product: Tensor = own_mm.call_boxed(keys, a, b)
            return product
        return by_onednn(a, b.t(), None, "none", (), "")

    def addmm(
        keys: Keys, bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
    ) -> Tensor:
        # A layer with a bias; what else there is, torch does by itself.
        if beta != 1 or alpha != 1 or bias.shape != (b.shape[1],) or not _is_large(a, b):
            sums: Tensor = own_addmm.call_boxed(keys, bias, a, b, beta=beta, alpha=alpha)
            return sums
        return by_onednn(a, b.t(), bias, "none", (), "")

    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*[Oo]verrid")  # which is the purpose
            library.impl("mm", mm, "CPU", with_keyset=True)
            library.impl("addmm", addmm, "CPU", with_keyset=True)
        yield


def _is_large(a: Tensor, b: Tensor) -> bool:
    """Whether there is a product, and work enough in it."""
    return (
        a.dtype is b.dtype is torch.float32
        and a.dim() == b.dim() == 2
        and a.shape[1] == b.shape[0]
        and a.shape[0] * a.shape[1] * b.shape[1] > LEAST_WORK
    )
