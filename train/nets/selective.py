"""Scores of very many candidates, whose gradient is computed for those alone that have one.

A ranking loss weighs candidates by a softmax. Among hundreds of masks it gives all but some a
weight of nearly nothing, and the way back through their convolutions would cost as much as that of
the others. Here every candidate is scored without keeping what lies between, and those that matter
once more for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

# Candidates that all together have a smaller share of the gradient than this are left out of it.
LEFT_OUT = 1e-6

# So many are computed at once: enough for the processor, few enough for its cache.
CHUNK = 64

Compute: TypeAlias = Callable[..., Tensor]
"""Tensors of n candidates each, then weights -> scores (n,)."""

Context: TypeAlias = Any  # what torch hands to a backward takes any attribute


def selective_scores(
    compute: Compute, candidates: Sequence[Tensor], weights: Sequence[Tensor]
) -> Tensor:
    """Return `compute(*candidates, *weights)`, where the weights alone get a gradient: (n,).

    `compute` must treat each candidate by itself and draw nothing at random: it is called twice.
    """
    scores: Tensor = _Selective.apply(  # type: ignore[no-untyped-call]
        compute, candidates, *weights
    )
    return scores


def that_matter(gradient: Tensor) -> Tensor:
    """Numbers of the candidates with nearly all of the gradient (n,)."""
    sizes, order = gradient.abs().sort()
    return order[sizes.cumsum(0) > LEFT_OUT * sizes.sum()]


class _Selective(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, compute: Compute, candidates: Sequence[Tensor], *weights: Tensor
    ) -> Tensor:
        ctx.compute, ctx.candidates = compute, candidates
        ctx.save_for_backward(*weights)
        chunks = zip(*(part.split(CHUNK) for part in candidates), strict=True)
        return torch.cat([compute(*chunk, *weights) for chunk in chunks])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights = [weight.detach().requires_grad_() for weight in ctx.saved_tensors]
        for chosen in that_matter(gradient).split(CHUNK):
            chunk = (part.index_select(0, chosen) for part in ctx.candidates)
            with torch.enable_grad():
                scores = ctx.compute(*chunk, *weights)
            scores.backward(gradient.index_select(0, chosen))
        return None, None, *(weight.grad for weight in weights)
