"""Texts made ready for training: term weights, vectors of a frozen encoder, or tokens."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from scipy import sparse

from train.batches import TokenRows, WordRows, scoring_order
from train.config import MethodConfig, TokenConfig
from train.data import MultiLabelData, Split, cache_dir
from train.encoding import TfidfEncoder, TokenEncoder
from train.errors import ConfigError
from train.nets.text import TextEncoder
from train.pretrained import Pretrained, load_pretrained
from train.problem import EncodedTexts, EncoderShape, Shape, check_parts
from train.word_pieces import WordEncoder, WordRow

MIN_TEXTS = 2
"""A term that fewer training texts have is left out: nothing is learned from it."""
VECTORS_VERSION = "1"
"""To be changed with whatever changes the vectors of a frozen encoder."""


def encode_texts(
    data: MultiLabelData,
    split: Split,
    config: MethodConfig,
    device: torch.device,
    *,
    progress: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> EncodedTexts | None:
    """Encode the texts of a data set as the options say; None where it has feature vectors."""
    if not isinstance(data.inputs, list):
        _refuse_for_features(data, config)
        return None
    encoder = _chosen(config)
    if data.words is not None and config.tuning == "frozen":
        raise ConfigError(
            f"{data.name} has labels on words, for which a text encoder is trained: add "
            "--tuning full or --tuning adapter"
        )
    check_parts(data, split)
    if encoder == "tfidf":
        return _term_weights(data.inputs, split, config)
    pretrained = load_pretrained(encoder, environ)
    if config.max_tokens > pretrained.max_tokens:
        raise ConfigError(
            f"--max-tokens {config.max_tokens}: --encoder {encoder} takes texts of at most "
            f"{pretrained.max_tokens} tokens"
        )
    saved: dict[str, Any] = {
        "kind": "tokens",
        "tokenizer": pretrained.tokenizer,
        "max_tokens": config.max_tokens,
    }
    shape = _shape(config, pretrained)
    if data.words is not None:
        saved |= {"kind": "words", "predicate": data.words.has_predicates}
        words = word_rows(data.words.rows, pretrained.tokenizer, config.max_tokens, device)
        return EncodedTexts(rows=words, saved=saved, encoder=shape)
    rows = token_rows(data.inputs, pretrained.tokenizer, config.max_tokens, device)
    if config.tuning != "frozen":
        return EncodedTexts(rows=rows, saved=saved, encoder=shape)
    cached = _cache_file(shape, saved, data.inputs, environ)
    vectors = cached_vectors(cached, shape, rows, device, progress=progress)
    frozen = {"encoder": shape.values(), "weights": pretrained.weights}
    return EncodedTexts(rows=vectors, saved={**saved, **frozen})


def encoded_like(
    data: MultiLabelData,
    saved: Mapping[str, Any] | None,
    shape: Mapping[str, Any],
    device: torch.device,
) -> EncodedTexts | None:
    """The texts of a data set as those of a run were; None where it holds feature vectors.

    A frozen encoder is not run: the networks of a checkpoint begin with it.

    saved, shape: `text` and `shape` of the run's checkpoint.
    """
    if saved is None or not isinstance(data.inputs, list):
        return None
    if saved["kind"] == "tfidf":
        matrix = _matrix(TfidfEncoder.from_json(saved["encoder"]), data.inputs)
        return EncodedTexts(rows=matrix, saved=dict(saved))
    told = (saved["tokenizer"], saved["max_tokens"], device)
    if data.words is None:
        rows = token_rows(data.inputs, *told)
    else:
        rows = word_rows(data.words.rows, *told)
    frozen = EncoderShape(**saved["encoder"]) if "encoder" in saved else None
    trained = Shape.from_values(dict(shape)).encoder
    return EncodedTexts(rows=rows, saved=dict(saved), encoder=frozen or trained)


def token_rows(
    texts: Sequence[str], tokenizer: str, max_tokens: int, device: torch.device
) -> TokenRows:
    """Cut texts into tokens."""
    encoder = TokenEncoder(tokenizer, max_tokens)
    numbers = [np.array(row, dtype=np.int32) for row in encoder.numbers(texts)]
    return TokenRows(numbers, encoder.padding, device)


def word_rows(
    rows: Sequence[WordRow], tokenizer: str, max_tokens: int, device: torch.device
) -> WordRows:
    """Cut words into tokens."""
    encoder = WordEncoder(tokenizer, max_tokens)
    return WordRows.of(encoder.pieces(rows), encoder.padding, device)


def _refuse_for_features(data: MultiLabelData, config: MethodConfig) -> None:
    for name in ("encoder", "tuning"):
        value = getattr(config, name)
        if value not in ("auto", "frozen"):
            raise ConfigError(
                f"--{name} {value} is for texts; {data.name} has feature vectors: leave it out"
            )


def _chosen(config: MethodConfig) -> str:
    """Which encoder; combinations that cannot be are refused."""
    is_trained = config.tuning != "frozen"
    if is_trained and not isinstance(config, TokenConfig):
        raise ConfigError(
            f"this method takes feature vectors and cannot train a text encoder (--tuning "
            f"{config.tuning}): use --tuning frozen or --encoder tfidf"
        )
    if is_trained and config.encoder == "tfidf":
        raise ConfigError(
            f"--encoder tfidf has nothing that --tuning {config.tuning} could train: use "
            "--encoder minilm, or --tuning frozen"
        )
    if config.encoder == "auto":
        return "minilm" if is_trained else "tfidf"
    return config.encoder


def _term_weights(texts: Sequence[str], split: Split, config: MethodConfig) -> EncodedTexts:
    encoder = TfidfEncoder.fit(
        [texts[row] for row in split.train],
        max_terms=config.max_terms,
        min_texts=MIN_TEXTS,
        bigrams=config.bigrams,
        characters=config.characters,
    )
    if not encoder.terms:
        raise ConfigError(
            f"no word is in {MIN_TEXTS} or more of the training texts, so there is nothing to "
            "learn from: give more texts, or --characters 4, or --encoder minilm"
        )
    saved = {"kind": "tfidf", "encoder": encoder.to_json()}
    return EncodedTexts(rows=_matrix(encoder, texts), saved=saved)


def _matrix(encoder: TfidfEncoder, texts: Sequence[str]) -> sparse.csr_array:
    starts, columns, values = encoder.encode(texts)
    return sparse.csr_array((values, columns, starts), shape=(len(texts), len(encoder.terms)))


def _shape(config: MethodConfig, pretrained: Pretrained) -> EncoderShape:
    trained = config if isinstance(config, TokenConfig) else TokenConfig()
    return EncoderShape(
        config=pretrained.config,
        pooling=config.pooling,
        tuning=config.tuning,
        adapter_size=trained.adapter_size,
        checkpointing=trained.checkpointing,
        weights=pretrained.weights,
    )


def cached_vectors(
    cached: Path, shape: EncoderShape, rows: TokenRows, device: torch.device, *, progress: bool
) -> np.ndarray:
    """Vectors (rows, width) of a frozen encoder, computed once for all methods and seeds."""
    if cached.is_file():
        try:
            found: np.ndarray = np.load(cached, allow_pickle=False)
        except (OSError, ValueError, EOFError):  # damaged: made anew
            found = np.zeros((0, 0), np.float32)
        if found.shape == (len(rows), shape.width):
            return found
    vectors = _vectors(TextEncoder(shape).to(device).eval(), rows, progress=progress)
    cached.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(prefix=f".{cached.name}.", dir=cached.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, vectors)
        os.replace(scratch, cached)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
    return vectors


@torch.no_grad()
def _vectors(encoder: TextEncoder, rows: TokenRows, *, progress: bool) -> np.ndarray:
    vectors = np.empty((len(rows), encoder.width), np.float32)
    bar = Console(stderr=True, quiet=not progress)
    for index in track(scoring_order(rows), "encoding texts", console=bar, transient=True):
        vectors[index.numpy()] = encoder(rows.take(index)).cpu().numpy()
    return vectors


def _cache_file(
    shape: EncoderShape,
    saved: Mapping[str, Any],
    texts: Sequence[str],
    environ: Mapping[str, str],
) -> Path:
    """Named by all that the vectors depend on."""
    digest = hashlib.blake2b(VECTORS_VERSION.encode(), digest_size=16)
    for name, value in (shape.weights or {}).items():
        digest.update(name.encode())
        digest.update(value.contiguous().numpy().data)
    for values in (shape.config, shape.pooling, saved, texts):
        digest.update(json.dumps(values, sort_keys=True).encode())
    return cache_dir(environ) / "vectors" / f"{digest.hexdigest()}.npy"
