"""From rows of requests to the inputs of a bundle's graph: for texts, what training did to them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from export.bundle import TOKENIZER, WORDS, Bundle, BundleError
from serve.inputs import (
    CALL,
    TOKEN_CALL,
    DenseRows,
    Parts,
    SparseRows,
    dense_parts,
    sparse_parts,
    token_parts,
)
from train.encoding import TfidfEncoder, TokenEncoder
from train.word_pieces import WordEncoder

Encode = Callable[[Any], Parts]
"""Rows of the kind that the bundle takes -> inputs of its graph."""


def encoder_of(bundle: Bundle, *, on_cpu: bool = True) -> Encode:
    """Read what a bundle encodes rows with; `on_cpu` is where its graph runs.

    Raises:
        BundleError: The file that says how is missing or cannot be used.
    """
    spec = bundle.manifest.input
    if spec.kind == "features":
        return dense_parts
    if spec.kind == "sparse":
        return sparse_parts
    by_tokens = spec.kind == "words" or spec.encoding == "tokens"
    name = TOKENIZER if by_tokens else WORDS
    if bundle.probe_texts is None or not bundle.has(name):
        raise BundleError(f"{bundle.path} takes text but has no {name}; export the model again")
    content = (bundle.path / name).read_text(encoding="utf-8")
    call = TOKEN_CALL if on_cpu else CALL
    try:
        if spec.kind == "words":
            return _words(content, spec.max_tokens or 0, call)
        if spec.encoding == "tokens":
            return _tokens(content, spec.max_tokens or 0, call)
        return _terms(TfidfEncoder.from_json(content), is_sparse=spec.graph_kind == "sparse")
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(
            f"{bundle.path / name} cannot be used ({error}); export the model again"
        ) from error


def _tokens(content: str, max_tokens: int, call: int) -> Encode:
    # Its threads would compete with those of the model, and a fork after they started hangs.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    encoder = TokenEncoder(content, max_tokens)

    def encode(rows: Any) -> Parts:  # noqa: ANN401 - see `Encode`
        ids, mask = encoder.encode(rows.texts)
        return token_parts({"input_ids": ids, "attention_mask": mask}, call)

    return encode


def _words(content: str, max_tokens: int, call: int) -> Encode:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # see `_tokens`
    encoder = WordEncoder(content, max_tokens)

    def encode(rows: Any) -> Parts:  # noqa: ANN401 - see `Encode`
        return token_parts(encoder.encode(rows.rows), call)

    return encode


def _terms(encoder: TfidfEncoder, *, is_sparse: bool) -> Encode:
    def encode(rows: Any) -> Parts:  # noqa: ANN401 - see `Encode`
        starts, columns, values = encoder.encode(rows.texts)
        counts = np.diff(starts)
        if is_sparse:
            return sparse_parts(SparseRows(counts, columns, values))
        features = np.zeros((len(counts), len(encoder.terms)), np.float32)
        features[np.repeat(np.arange(len(counts)), counts), columns] = values
        return dense_parts(DenseRows(features))

    return encode
