"""A folder of pictures, from training to masks over HTTP."""

from __future__ import annotations

import base64
import io
import json

import httpx
import numpy as np
import torch
from PIL import Image

from train.checkpoint import load_checkpoint


def write_pictures(folder, count: int = 15) -> np.ndarray:
    """Bright squares on dark ground; the mask is the square."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 80, (count, 16, 16, 3)).astype(np.uint8)
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
    for number, image in enumerate(images):
        top, left = rng.integers(0, 10, 2)
        mask = np.zeros((16, 16), np.uint8)
        mask[top : top + 6, left : left + 6] = 255
        image[mask > 0] += 150
        Image.fromarray(image).save(folder / "images" / f"{number:02}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number:02}.png")
    return images


def test_pictures_from_training_to_served_masks(run, serving, tmp_path):
    images = write_pictures(tmp_path / "squares")
    words = ["--dataset", "./squares", "--image-size", "16", "--epochs", "4", "--batch-size", "4"]
    trained = run("train", "ce", *words, "--monitor", "mean_iou")
    assert "images of 16 x 16 pixels" in trained.stdout
    run("train", "seal", "--loss", "regression", *words)
    runs = tmp_path / "runs" / "squares"
    scores = json.loads((runs / "ce-0" / "metrics.json").read_text())["scores"]
    assert scores["fixed"].keys() == {"mean_iou", "global_iou", "pixel_accuracy", "example_f1"}
    run("train", "masks", "runs/squares/ce-0", "runs/squares/seal-0", "--images", "2")
    with Image.open(runs / "ce-0" / "masks.png") as drawn:
        assert drawn.size[0] > 100
    reported = run("train", "report", "runs/squares/ce-0", "runs/squares/seal-0")
    assert f"{scores['fixed']['mean_iou']:.4f}" in reported.stdout
    page = (runs / "ce-0" / "report.html").read_text()
    for part in ("mean image IoU", "images of 16 x 16 pixels", "the first test images, at 0.5"):
        assert part in page
    # Three figures: both runs, and each by itself; of 3 test images, their masks and the runs'.
    assert page.count("<image ") == (2 + 2) * 3 + 2 * (2 + 1) * 3

    assert "images of 16 x 16" in run("export", "runs/squares/ce-0/model.pt").stdout
    with torch.no_grad():
        rows = torch.from_numpy(images[:2].reshape(2, -1).astype(np.float32))
        logits = load_checkpoint(runs / "ce-0" / "model.pt").predictor()(rows)
    picture = base64.b64encode((tmp_path / "squares/images/00.png").read_bytes()).decode()
    with serving("runs/squares/ce-0/model.bundle") as url:
        answer = httpx.post(f"{url}/predict", json={"inputs": [picture]}).json()
    mask = Image.open(io.BytesIO(base64.b64decode(answer["predictions"][0]["mask"])))
    np.testing.assert_array_equal(np.asarray(mask).ravel() > 0, logits[0].sigmoid() >= 0.5)


def test_a_method_of_labels_refuses_pictures(run, tmp_path):
    write_pictures(tmp_path / "squares")
    refused = run("train", "warp", "--dataset", "./squares", code=2)
    assert "warp does not do segmentation: use ce, dvn, seal" in refused.stderr
