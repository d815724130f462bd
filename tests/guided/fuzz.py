"""Random bytes that follow what they reach in the code, by atheris: `fuzz.py TARGET FOLDER ...`.

FOLDER holds what a target needs and its corpus; the rest is for libFuzzer. A process of its own,
as atheris rewrites what is imported and ends the process when it is done.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "serve")]
with atheris.instrument_imports(include=["serve", "train"], enable_loader_override=False):
    from fuzzing import check_body

    from export.bundle import load_bundle
    from serve.predictor import OnnxPredictor
    from serve.service import Service
    from serve.settings import Settings
    from train.data.formats import read_path
    from train.errors import UserError

Target = Callable[[bytes], None]


def json_target(folder: Path) -> Target:
    """A body for `POST /predict`: the rows that Python's own parser sees, or one sentence."""
    bundle = folder / "tiny.bundle"
    names = Service(Settings(bundles=(bundle,)), [OnnxPredictor(load_bundle(bundle))]).names
    return lambda body: check_body({}, body, names, body)


def file_target(name: str) -> Callable[[Path], Target]:
    """A data file of this name: a data set, or one sentence."""

    def make(folder: Path) -> Target:
        path = folder / name

        def read(content: bytes) -> None:
            path.write_bytes(content)
            try:
                data = read_path(path)
            except UserError as error:
                refusal = str(error)
            else:
                refusal = ""
                assert data.targets.shape[1] == len(data.labels)
            assert "\n" not in refusal

        return read

    return make


TARGETS = {"json": json_target, "arff": file_target("x.arff"), "xc": file_target("x.txt")}


def main(target: str, folder: Path, options: list[str]) -> None:
    """Fuzz until libFuzzer has had its runs, or something else than a refusal was raised."""
    warnings.simplefilter("ignore")
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    atheris.Setup([sys.argv[0], *options], TARGETS[target](folder))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
