"""Models of images: pictures and arrays in, masks out."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from export.manifest import ImageSize, InputSpec, Thresholds

HEIGHT, WIDTH = 4, 5


@pytest.fixture
def linear(model):
    """A model of 4 x 5 pixels."""
    weights = type(model).random(width=HEIGHT * WIDTH * 3, labels=HEIGHT * WIDTH, seed=3)
    return type(model)(weights.weights / 200, weights.bias)


@pytest.fixture
def pixels(linear, write, tmp_path, serve_app):
    path = write(
        tmp_path / "pixels.bundle",
        linear,
        name="pixels",
        task="segmentation",
        thresholds=Thresholds(tuned=0.4, per_label=[0.4] * linear.label_count),
        input=InputSpec(
            kind="features", width=linear.width, image=ImageSize(height=HEIGHT, width=WIDTH)
        ),
    )
    return serve_app(path)


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (2, HEIGHT, WIDTH, 3)).astype(np.uint8)


def png(image: np.ndarray, form: str = "PNG") -> str:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, form)
    return base64.b64encode(stream.getvalue()).decode()


def expected(linear, images: np.ndarray, threshold: float = 0.5) -> np.ndarray:
    scores = linear.scores(images.reshape(len(images), -1))
    return (scores >= threshold).reshape(-1, HEIGHT, WIDTH)


def masks_of(answer) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    pictures = [base64.b64decode(entry["mask"]) for entry in answer.json()["predictions"]]
    return np.stack([np.asarray(Image.open(io.BytesIO(picture))) for picture in pictures])


def unrolled(lengths: list[int]) -> np.ndarray:
    """The slow way back from run lengths."""
    cells = [index % 2 for index, length in enumerate(lengths) for _ in range(length)]
    return np.array(cells).reshape(HEIGHT, WIDTH)


def ways(images: np.ndarray) -> dict[str, list[object]]:
    return {
        "png": [png(image) for image in images],
        "data url": [f"data:image/png;base64,{png(image)}" for image in images],
        "array": images.tolist(),
        "flat": images.reshape(len(images), -1).tolist(),
    }


@pytest.mark.parametrize("way", ["png", "data url", "array", "flat"])
def test_pictures_and_arrays_give_the_same_masks(way, pixels, linear, images):
    answer = pixels.predict({"inputs": ways(images)[way]})
    wanted = expected(linear, images)
    assert wanted.any()
    assert not wanted.all()
    np.testing.assert_array_equal(masks_of(answer), 255 * wanted)
    coverage = [entry["coverage"] for entry in answer.json()["predictions"]]
    np.testing.assert_allclose(coverage, wanted.mean((1, 2)), atol=1e-6)


@pytest.mark.parametrize(("threshold", "value"), [("tuned", 0.4), ("per-label", 0.4), (0.7, 0.7)])
def test_run_lengths_at_any_threshold(threshold, value, pixels, linear, images):
    body = {"inputs": ways(images)["png"], "mask": "rle", "threshold": threshold}
    answer = pixels.predict(body).json()
    masks = [unrolled(entry["mask"]) for entry in answer["predictions"]]
    np.testing.assert_array_equal(masks, expected(linear, images, value))


def test_a_larger_picture_is_brought_to_the_size_of_the_model(pixels, linear):
    plain = np.full((1, 40, 50, 3), 90, np.uint8)
    answer = pixels.predict({"inputs": [png(plain[0], "JPEG")]})
    np.testing.assert_array_equal(
        masks_of(answer), 255 * expected(linear, plain[:, :HEIGHT, :WIDTH])
    )


def test_an_array_body_works_too(pixels, linear, images):
    body = images.reshape(2, -1).astype("<f4").tobytes()
    headers = {"content-type": "application/octet-stream"}
    answer = pixels.run(
        lambda client: client.post("/predict?mask=rle", content=body, headers=headers)
    )
    masks = [unrolled(entry["mask"]) for entry in answer.json()["predictions"]]
    np.testing.assert_array_equal(masks, expected(linear, images))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": ["!!"]}, "row 0 must be a PNG or JPEG picture as base64"),
        ({"inputs": ["aGVsbG8="]}, "row 0 must be a PNG or JPEG picture as base64: it is no"),
        ({"inputs": [[[1, 2, 3]]]}, "row 0 must be an array of 4 x 5 x 3 numbers of 0 to 255"),
        ({"inputs": [[0.0] * 7]}, "row 0 must have 60 numbers, got 7"),
        ({"inputs": [[0.0] * 60], "top_k": 2}, 'answers with masks: leave "top_k" out'),
        ({"inputs": [[0.0] * 60], "mask": "gif"}, '"mask" must be "png" or "rle", got "gif"'),
    ],
)
def test_mistakes_are_told_in_one_sentence(body, message, pixels):
    answer = pixels.predict(body)
    assert answer.status_code == 422
    assert message in answer.json()["error"]["message"]


def test_models_of_labels_refuse_masks(app, model):
    answer = app.predict({"inputs": model.rows(1), "mask": "png"})
    assert answer.status_code == 422
    assert '"mask" is for models of images' in answer.json()["error"]["message"]


def test_the_description_tells_the_size(pixels):
    about = pixels.get("/models").json()["models"][0]
    assert about["task"] == "segmentation"
    assert about["input"]["image"] == {"height": HEIGHT, "width": WIDTH}
