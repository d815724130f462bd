"""Pictures in, masks out: the wire by itself, and a live server with a model of images."""

from __future__ import annotations

import base64
import io
import json
import struct
import sys
import zlib
from pathlib import Path

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from export.bundle import MODEL as GRAPH
from export.bundle import Contents, Manifest, Thresholds, drafted, write_bundle
from export.manifest import ImageSize, InputSpec
from labelwright_client import BadAnswer, Client, InvalidArgument, InvalidInput
from labelwright_client._png import read_grey
from labelwright_client.cli import main
from tests.clients.conftest import serving

HEIGHT, WIDTH = 4, 6
PIXELS = HEIGHT * WIDTH


def file_of(pixels: np.ndarray, form: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form, **options)
    return stream.getvalue()


@pytest.fixture
def images() -> np.ndarray:
    """Red where they are on."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 100, (2, HEIGHT, WIDTH, 3)).astype(np.uint8)
    images[..., 0] += 150 * (rng.random((2, HEIGHT, WIDTH)) < 0.4).astype(np.uint8)
    return images


def is_red(images: np.ndarray) -> np.ndarray:
    return images[..., 0] >= 128


@pytest.fixture(scope="session")
def reds(tmp_path_factory) -> Path:
    """A model whose score of a pixel is how red it is: sigmoid((red - 127.5) / 20)."""
    value, path = helper.make_tensor_value_info, tmp_path_factory.mktemp("reds") / "reds.bundle"
    weights = np.zeros((PIXELS * 3, PIXELS), np.float32)
    weights[np.arange(PIXELS) * 3, np.arange(PIXELS)] = 1 / 20
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["features", "W"], ["red"]),
            helper.make_node("Add", ["red", "b"], ["logits"]),
            helper.make_node("Sigmoid", ["logits"], ["scores"]),
            helper.make_node("Reshape", ["k", "one"], ["k1"]),
            helper.make_node("TopK", ["scores", "k1"], ["top_scores", "top_labels"]),
        ],
        "reds",
        [value("features", TensorProto.FLOAT, ["rows", PIXELS * 3]),
         value("k", TensorProto.INT64, [])],
        [value("scores", TensorProto.FLOAT, ["rows", PIXELS]),
         value("top_scores", TensorProto.FLOAT, ["rows", "best"]),
         value("top_labels", TensorProto.INT64, ["rows", "best"])],
        [numpy_helper.from_array(weights, "W"),
         numpy_helper.from_array(np.full(PIXELS, -127.5 / 20, np.float32), "b"),
         numpy_helper.from_array(np.array([1], dtype=np.int64), "one")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    size = ImageSize(height=HEIGHT, width=WIDTH)
    manifest = Manifest(
        name="reds", version="0123456789ab", method="ce", task="segmentation", dataset="reds",
        input=InputSpec(kind="features", width=PIXELS * 3, image=size), label_count=PIXELS,
        thresholds=Thresholds(tuned=0.6, per_label=[0.6] * PIXELS), test_scores={"mean_iou": 0.5},
        largest_difference=1e-7, versions={"onnx": onnx.__version__},
    )  # fmt: skip
    probe = np.random.default_rng(1).integers(0, 256, (2, PIXELS * 3)).astype(np.float32)
    scores = (1 / (1 + np.exp(-(probe @ weights - 127.5 / 20)))).astype(np.float32)
    with drafted(path) as folder:
        (folder / GRAPH).write_bytes(model.SerializeToString())
        labels = [f"{i // WIDTH},{i % WIDTH}" for i in range(PIXELS)]
        contents = Contents(labels=labels, probe={"features": probe}, probe_scores=scores)
        write_bundle(folder, manifest, contents)
    return path


@pytest.fixture(scope="session")
def masks_address(reds) -> str:
    with serving(reds) as url:
        yield url


def test_pictures_become_masks(connect, masks_address, images, tmp_path):
    client = connect(masks_address)
    file = tmp_path / "picture.png"
    file.write_bytes(file_of(images[0]))
    for pictures in (images, list(images), images.tolist(), [file_of(one) for one in images]):
        masks = client.segment(pictures)
        assert len(masks) == 2
        assert np.array_equal([mask.to_array() for mask in masks], is_red(images))
    mask = client.segment([file], model="reds")[0]
    assert (mask.height, mask.width) == (HEIGHT, WIDTH)
    assert mask.lines() == is_red(images)[0].tolist()
    assert mask.coverage == pytest.approx(is_red(images)[0].mean(), abs=1e-6)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(mask.png))) > 0, is_red(images)[0])
    assert masks[:1] == (masks[0],)
    assert masks.model.name == "reds"


def test_the_threshold_moves_the_mask(connect, masks_address, images):
    client = connect(masks_address)
    assert client.segment(images, threshold=0.0)[0].coverage == 1
    scores = 1 / (1 + np.exp((127.5 - images[..., 0].astype(float)) / 20))
    tuned = client.segment(images, threshold="tuned")
    assert np.array_equal([mask.to_array() for mask in tuned], scores >= 0.6)


def test_bad_pictures_are_refused_by_the_server(connect, masks_address):
    with pytest.raises(InvalidInput, match="row 0 must be a PNG or JPEG"):
        connect(masks_address).segment([b"no picture"])


def test_predict_names_the_method_that_reads_masks(connect, masks_address, images):
    with pytest.raises(BadAnswer, match=r"answers with masks: ask it by segment\(\)"):
        connect(masks_address).predict(images.reshape(2, -1).tolist())


@pytest.mark.parametrize(
    ("pictures", "words"),
    [
        (b"bytes", "got one single picture: wrap it"),
        (Path("x.png"), "got one single picture: wrap it"),
        ([], "got list of none"),
        (5, "got int of none"),
        (["x.png"], "picture 0 is a str: expected a list of pictures"),
        ([Path("no-such.png")], "cannot read no-such.png: No such file"),
    ],
    ids=["bytes", "path", "empty", "number", "text", "missing"],
)
def test_what_is_no_picture_is_refused_before_sending(connect, server, pictures, words):
    with pytest.raises(InvalidArgument, match=words):
        connect(server.url).segment(pictures)
    assert server.seen == []


def answer_of(*masks: object) -> dict:
    head = {"name": "reds", "version": "1", "method": "ce"}
    times = {"queue": 0, "inference": 0, "total": 0}
    entries = [{"mask": mask, "coverage": 0.5} for mask in masks]
    return {"model": head, "predictions": entries, "latency_ms": times, "request_id": "r"}


GREY = file_of(np.arange(12, dtype=np.uint8).reshape(3, 4))


def chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def png(*chunks: bytes) -> bytes:
    return b"".join([GREY[:8], *chunks])


HEADER = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 3, 8, 0, 0, 0, 0))
DAMAGED = {
    "no PNG": (b"GIF89a", "no whole PNG"),
    "nothing": (b"", "no whole PNG"),
    "cut off": (GREY[:40], "no whole PNG"),
    "half a chunk": (GREY + b"\x00", "no whole PNG"),
    "too few lines": (png(HEADER, chunk(b"IDAT", zlib.compress(bytes(5)))), "no whole PNG"),
    "colours": (file_of(np.zeros((2, 2, 3), np.uint8)), "8 bits of grey"),
    "too large": (
        png(chunk(b"IHDR", struct.pack(">IIBBBBB", 1 << 30, 1 << 30, 8, 0, 0, 0, 0))),
        "8 bits of grey",
    ),
    "filter": (png(HEADER, chunk(b"IDAT", zlib.compress(b"\x09" + bytes(14)))), "filter 9"),
}


@pytest.mark.parametrize("name", DAMAGED, ids=lambda name: name.replace(" ", "-"))
def test_a_damaged_mask_is_a_bad_answer(connect, server, name):
    content, words = DAMAGED[name]
    server.then(200, answer_of(base64.b64encode(content).decode()))
    with pytest.raises(BadAnswer, match=words):
        connect(server.url).segment([b"picture"])


@pytest.mark.parametrize("masks", [[], ["!"], [[1, 2]]], ids=["none", "no-base64", "runs"])
def test_other_answers_are_bad_answers(connect, server, masks):
    server.then(200, answer_of(*masks))
    with pytest.raises(BadAnswer):
        connect(server.url).segment([b"picture"])


@pytest.mark.parametrize("rule", range(5))
def test_every_filter_of_a_png_is_read(rule):
    rng = np.random.default_rng(rule)
    lines = rng.integers(0, 256, (7, 5)).astype(np.uint8)
    content = b"".join(bytes([rule]) + line.tobytes() for line in lines)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 7, 8, 0, 0, 0, 0))
    made = png(header, chunk(b"IDAT", zlib.compress(content)), chunk(b"IEND", b""))
    expected = np.asarray(Image.open(io.BytesIO(made)))
    assert read_grey(made) == (7, 5, expected.tobytes())


def test_arrays_need_numpy(masks_address, images, monkeypatch):
    with Client(masks_address) as client:
        mask = client.segment(images)[0]
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ImportError, match="pip install numpy"):
        mask.to_array()
    assert mask.lines()


@pytest.fixture
def run(masks_address, tmp_path, monkeypatch, capsys, images):
    """The command line beside a picture; what it printed, as text and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABELWRIGHT_URL", masks_address)
    Path("picture.png").write_bytes(file_of(images[0]))

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_the_command_line_segments_a_picture(run, images):
    on = is_red(images)[0]
    share = round(float(on.mean()), 6)
    told = f"row,height,width,coverage\n0,{HEIGHT},{WIDTH},{share}\n"
    assert run("predict", "picture.png") == (0, told, "")
    assert run("predict", "picture.png", "--out", "mask.png", "--threshold", "0.5")[0] == 0
    assert np.array_equal(np.asarray(Image.open("mask.png")) > 0, on)
    assert run("predict", "picture.png", "--out", "mask.jsonl")[0] == 0
    line = json.loads(Path("mask.jsonl").read_text("utf-8"))
    assert base64.b64decode(line.pop("mask")) == Path("mask.png").read_bytes()
    assert line == {"row": 0, "height": HEIGHT, "width": WIDTH, "coverage": share}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["picture.png", "--top-k", "3"], "--top-k is for labels"),
        (["picture.png", "--out", "no/mask.png"], "cannot write no/mask.png"),
        (["rows.csv"], "reds takes pictures, and rows.csv has none: send .png"),
    ],
)
def test_mistakes_with_pictures_are_one_sentence(run, words, expected):
    code, out, err = run("predict", *words)
    assert (code, out) == (2, "")
    assert expected in err


def test_a_model_of_rows_takes_no_picture(address, monkeypatch, capsys):
    monkeypatch.setenv("LABELWRIGHT_URL", address)
    assert main(["predict", "picture.png"]) == 2
    assert "two takes rows, and picture.png has none: send .csv" in capsys.readouterr().err


def test_the_example_of_the_page_is_answered(masks_address, images):
    """As docs/structured.md asks it by curl."""
    picture = base64.b64encode(file_of(images[0], "JPEG", quality=95)).decode()
    answer = httpx.post(f"{masks_address}/predict", json={"inputs": [picture], "mask": "rle"})
    assert sum(answer.json()["predictions"][0]["mask"]) == PIXELS
