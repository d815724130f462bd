"""Files that a stranger made to do harm, and what happens to who reads them.

`python tests/pipeline/strangers.py` makes each in a folder of its own and reads it in a process of
its own. It prints one JSON line a file: `name`, the `error` and its `sentence`, the `megabytes`
that reading took beside what the program has in memory anyway, and `seconds`.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pickle  # noqa: TID251 - to make files that must be refused
import resource
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from export.bundle import Contents, _entry, drafted, load_bundle, write_bundle
from export.manifest import InputSpec, Manifest, Thresholds
from serve.predictor import OnnxPredictor
from train.checkpoint import load_checkpoint
from train.config import read_preset
from train.data.formats import read_path
from train.errors import UserError
from train.methods import ce
from train.problem import Shape
from train.storage import load, save

MIB = 2**20
ZEROS = bytes(64 * MIB)
Case = tuple[Callable[[Path], Path], Callable[[Path], object]]
CASES: dict[str, Case] = {}


def case(reader: Callable[[Path], object]) -> Callable[[Callable[[Path], Path]], None]:
    def register(make: Callable[[Path], Path]) -> None:
        CASES[make.__name__] = (make, reader)

    return register


# Checkpoints.


def checkpoint_values(**changes: Any) -> dict[str, Any]:
    network = ce.predictor(ce.Config(hidden=(5,)), Shape(n_features=3, n_labels=2, n_rows=4))
    return {
        "name": "some-ce",
        "method": "ce",
        "task": "multilabel",
        "config": {"hidden": [5]},
        "dataset": "some",
        "shape": {"n_features": 3, "n_labels": 2, "n_rows": 4},
        "labels": ["a", "b"],
        "features": [],
        "scaling": None,
        "weights": network.state_dict(),
        "thresholds": {"tuned": 0.5, "per_label": torch.zeros(2)},
        "scores": {"test": {}, "validation": {}},
        "split": {},
        "seed": 0,
        "epoch": 1,
        "probe": torch.zeros(1, 3),
        "versions": {},
        "schema": 1,
        **changes,
    }


class RunsCode:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("the_code_ran",)


class IsLarge:
    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (8 * 2**30,)


def read_model(path: Path) -> object:
    return load_checkpoint(path).predictor()


@case(read_model)
def checkpoint_that_runs_code(folder: Path) -> Path:
    torch.save(checkpoint_values(split=RunsCode()), folder / "model.pt")
    return folder / "model.pt"


@case(load)
def resume_state_that_runs_code(folder: Path) -> Path:
    (folder / "resume.pt").write_bytes(pickle.dumps({"schema": 1, "state": RunsCode()}))
    return folder / "resume.pt"


@case(read_model)
def checkpoint_that_makes_bytes(folder: Path) -> Path:
    torch.save(checkpoint_values(split=IsLarge()), folder / "model.pt")
    return folder / "model.pt"


@case(read_model)
def checkpoint_that_is_packed(folder: Path) -> Path:
    path = folder / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/version", "3\n")
        with archive.open("model/data.pkl", "w") as member:
            for _ in range(8):
                member.write(ZEROS)
    return path


@case(read_model)
def checkpoint_of_a_tensor_that_is_one_number(folder: Path) -> Path:
    many = {"tuned": 0.5, "per_label": torch.zeros(1).expand(10**12)}
    save(checkpoint_values(thresholds=many), folder / "model.pt")
    return folder / "model.pt"


@case(read_model)
def checkpoint_of_a_network_without_its_weights(folder: Path) -> Path:
    save(checkpoint_values(config={"hidden": [10**9]}), folder / "model.pt")
    return folder / "model.pt"


@case(lambda path: read_preset(path, ce.Config))
def preset_of_brackets(folder: Path) -> Path:
    (folder / "ce.toml").write_text("hidden = " + "[" * 10**5)
    return folder / "ce.toml"


# Bundles.


def graph(**changes: Any) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    weight = changes.get("weight") or helper.make_tensor("W", TensorProto.FLOAT, [3, 2], [0.0] * 6)
    nodes = [
        helper.make_node("MatMul", ["features", "W"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["scores"], domain=changes.get("domain", "")),
        helper.make_node("Reshape", ["k", "one"], ["k1"]),
        helper.make_node("TopK", ["scores", "k1"], ["top_scores", "top_labels"]),
    ]
    inputs = [value("features", TensorProto.FLOAT, ["r", 3]), value("k", TensorProto.INT64, [])]
    outputs = [
        value("scores", TensorProto.FLOAT, ["r", 2]),
        value("top_scores", TensorProto.FLOAT, ["r", "b"]),
        value("top_labels", TensorProto.INT64, ["r", "b"]),
    ]
    constants = [weight, helper.make_tensor("one", TensorProto.INT64, [1], [1])]
    body = helper.make_graph(nodes, "linear", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17)]
    if "domain" in changes:
        opsets.append(helper.make_opsetid(changes["domain"], 1))
    return helper.make_model(body, opset_imports=opsets, ir_version=10)


def write(path: Path, model: onnx.ModelProto | None = None, **files: bytes) -> Path:
    """A bundle that serves, but for its graph or the `files` put into it, told in its manifest."""
    probe = np.zeros((1, 3), np.float32)
    manifest = Manifest(
        name="some",
        version="0",
        method="ce",
        task="multilabel",
        dataset="some",
        input=InputSpec(kind="features", width=3),
        label_count=2,
        thresholds=Thresholds(tuned=0.5, per_label=[0.5, 0.5]),
        test_scores={},
        largest_difference=0.0,
        versions={},
    )
    with drafted(path) as folder:
        (folder / "model.onnx").write_bytes((model or graph()).SerializeToString())
        scores = np.full((1, 2), 0.5, np.float32)
        contents = Contents(labels=["a", "b"], probe={"features": probe}, probe_scores=scores)
        write_bundle(folder, manifest, contents)
    about = json.loads((path / "manifest.json").read_text())
    for name, content in files.items():
        file = path / name.replace("_", ".")
        file.write_bytes(content)
        about["files"][file.name] = vars(_entry(file))
    (path / "manifest.json").write_text(json.dumps(about))
    return path


def edit(path: Path, **changes: Any) -> Path:
    about = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**about, **changes}))
    return path


def npy(shape: tuple[int, ...], kind: str = "<f4", numbers: bytes = bytes(64)) -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + numbers


def npz(path: Path, **arrays: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return path


def read_bundle(path: Path) -> object:
    return OnnxPredictor(load_bundle(path))


@case(read_bundle)
def bundle_that_reads_other_files(folder: Path) -> Path:
    weight = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=[3, 2])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../../../../../../etc/passwd")
    return write(folder / "b", graph(weight=weight))


@case(read_bundle)
def bundle_of_operators_from_elsewhere(folder: Path) -> Path:
    return write(folder / "b", graph(domain="stranger.ops"))


@case(read_bundle)
def bundle_with_a_link_out_of_it(folder: Path) -> Path:
    path = write(folder / "b")
    (path / "labels.json").rename(folder / "elsewhere.json")
    (path / "labels.json").symlink_to("../elsewhere.json")
    return path


@case(read_bundle)
def bundle_whose_manifest_is_a_link(folder: Path) -> Path:
    path = write(folder / "b")
    (path / "manifest.json").rename(folder / "elsewhere.json")
    (path / "manifest.json").symlink_to(folder / "elsewhere.json")
    return path


@case(read_bundle)
def bundle_that_claims_huge_files(folder: Path) -> Path:
    path = write(folder / "b")
    about = json.loads((path / "manifest.json").read_text())["files"]
    return edit(path, files={name: {**entry, "bytes": 10**15} for name, entry in about.items()})


@case(read_bundle)
def bundle_that_claims_a_trillion_labels(folder: Path) -> Path:
    return edit(write(folder / "b"), label_count=10**12)


@case(read_bundle)
def bundle_with_a_label_table_beyond_its_file(folder: Path) -> Path:
    path = write(folder / "b", model_onnx_data=bytes(64))
    return edit(path, label_table={"size": 10**9, "offset": 0, "by_label": True})


@case(read_bundle)
def bundle_whose_manifest_is_deep(folder: Path) -> Path:
    path = write(folder / "b")
    (path / "manifest.json").write_text('{"schema": 1, "x": ' + "[" * 10**5)
    return path


@case(read_bundle)
def bundle_whose_graph_is_one_long_number(folder: Path) -> Path:
    return write(folder / "b", model_onnx=b"\xff" * 2**20)


@case(read_bundle)
def bundle_whose_graph_is_deep(folder: Path) -> Path:
    inner = b""
    for depth in reversed(range(3000)):  # a graph in an attribute of a node of a graph ...
        key = (b"\x0a", b"\x2a", b"\x32")[(depth - 1) % 3] if depth else b"\x3a"
        size, length = len(inner), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        inner = key + length + bytes([size]) + inner
    return write(folder / "b", model_onnx=inner)


@case(read_bundle)
def bundle_with_a_probe_of_objects(folder: Path) -> Path:
    file = npz(folder / "probe", features=npy((1, 3), "|O", pickle.dumps([RunsCode()])))
    return write(folder / "b", probe_npz=file.read_bytes())


@case(read_bundle)
def bundle_with_a_probe_of_a_huge_shape(folder: Path) -> Path:
    file = npz(folder / "probe", features=npy((10**9, 10**3)), scores=npy((1, 16)))
    return write(folder / "b", probe_npz=file.read_bytes())


@case(read_bundle)
def bundle_with_thresholds_of_a_huge_shape(folder: Path) -> Path:
    path = write(folder / "b", thresholds_npy=npy((10**11,)))
    return edit(path, thresholds={"tuned": 0.5, "per_label": None})


@case(read_bundle)
def bundle_with_a_giant_vocabulary(folder: Path) -> Path:
    words = b",".join(b'"w%d": %d' % (number, number) for number in range(3_500_000))
    content = b'{"model": {"type": "WordLevel", "vocab": {' + words + b'}, "unk_token": "w0"}}'
    path = write(folder / "b", tokenizer_json=content)
    return edit(path, input={"kind": "text", "encoding": "tokens", "graph": "tokens"})


# Data files.


def packed(path: Path, pack: Callable[[bytes], bytes]) -> Path:
    path.write_bytes(pack(ZEROS) * 8)  # streams may follow one another: half a gigabyte
    return path


@case(read_path)
def data_gzip_bomb(folder: Path) -> Path:
    return packed(folder / "x.csv.gz", gzip.compress)


@case(read_path)
def data_xz_bomb(folder: Path) -> Path:
    return packed(folder / "x.txt.xz", lambda plain: lzma.compress(plain, preset=0))


@case(read_path)
def data_bz2_bomb(folder: Path) -> Path:
    return packed(folder / "x.arff.bz2", bz2.compress)


@case(read_path)
def data_zip_bomb(folder: Path) -> Path:
    packing = zipfile.ZipFile(folder / "x.svm.zip", "w", zipfile.ZIP_DEFLATED)
    with packing as archive, archive.open("x.svm", "w") as member:
        for _ in range(8):
            member.write(ZEROS)
    return folder / "x.svm.zip"


@case(read_path)
def npz_bomb(folder: Path) -> Path:
    numbers = npy((256 * MIB // 16, 4), numbers=ZEROS * 4)
    return npz(folder / "x.npz", x=numbers, y=npy((4, 4)))


@case(read_path)
def npz_of_objects(folder: Path) -> Path:
    return npz(folder / "x.npz", x=npy((1,), "|O", pickle.dumps([RunsCode()])), y=npy((4, 4)))


@case(read_path)
def npz_of_a_huge_shape(folder: Path) -> Path:
    return npz(folder / "x.npz", x=npy((10**12, 4)), y=npy((4, 4)))


@case(read_path)
def npz_of_a_negative_shape(folder: Path) -> Path:
    return npz(folder / "x.npz", x=npy((-4, -4)), y=npy((4, 4)))


def text_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@case(read_path)
def arff_of_a_billion_labels(folder: Path) -> Path:
    return text_file(
        folder / "x.arff", "@relation 'x: -C 1000000000'\n@attribute a {0,1}\n@data\n1"
    )


@case(read_path)
def arff_of_an_index_of_a_billion(folder: Path) -> Path:
    header = "@relation 'x: -C 1'\n@attribute a {0,1}\n@attribute b numeric\n@data\n"
    return text_file(folder / "x.arff", header + "{0 1,999999999 1}\n")


@case(read_path)
def arff_of_blanks(folder: Path) -> Path:
    header = "@relation 'x: -C 1'\n@attribute a {0,1}\n@attribute b {x,y}\n@data\n"
    return text_file(folder / "x.arff", header + "1,'x'" + " " * 2**18 + "z\n")


@case(read_path)
def arff_with_labels_that_unfold(folder: Path) -> Path:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    text_file(folder / "x.xml", f'<!DOCTYPE x [<!ENTITY e0 "ha">{entities}]><x>&e11;</x>')
    return text_file(folder / "x.arff", "@relation x\n@attribute a {0,1}\n@data\n1\n")


@case(read_path)
def xc_of_a_trillion_labels(folder: Path) -> Path:
    return text_file(folder / "x.txt", "1 5 1000000000000\n1 1:1\n")


@case(read_path)
def xc_of_a_trillion_features(folder: Path) -> Path:
    return text_file(folder / "x.txt", "1 1000000000000 5\n1 1:1\n")


@case(read_path)
def xc_of_a_trillion_rows(folder: Path) -> Path:
    return text_file(folder / "x.txt", "1000000000000 5 5\n1 1:1\n")


@case(read_path)
def svmlight_of_a_billion_features(folder: Path) -> Path:
    return text_file(folder / "x.svm", "1 0:1 999999999:1\n")


@case(read_path)
def svmlight_of_blanks(folder: Path) -> Path:
    return text_file(folder / "x.svm", "1 0:1" + " " * 2**20 + "x\n")


@case(read_path)
def jsonl_of_brackets(folder: Path) -> Path:
    return text_file(folder / "x.jsonl", '{"text": ' + "[" * 10**5 + "\n")


@case(read_path)
def jsonl_of_digits(folder: Path) -> Path:
    return text_file(folder / "x.jsonl", '{"text": ' + "1" * 10**5 + "}\n")


@case(read_path)
def csv_of_a_hundred_thousand_equal_columns(folder: Path) -> Path:
    return text_file(folder / "x.csv", "a," * 10**5 + "a\n")


@case(read_path)
def parquet_of_equal_cells(folder: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    ones = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**26, np.int8)), pa.array(["x"]))
    parquet.write_table(pa.table({"text": ones}), folder / "x.parquet")
    return folder / "x.parquet"


# How each is read.


def read_alone(name: str, path: Path) -> dict[str, Any]:
    """Read one file in a child, as its memory is counted from its own birth on."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.chdir(path.parent)
        _report(name, path, writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as report:
        told = report.read()
    os.waitpid(pid, 0)
    ran = (path.parent / "the_code_ran").exists() or (path / "the_code_ran").exists()
    return {"name": name, "ran": ran, **(json.loads(told) if told else {"error": "died"})}


def _report(name: str, path: Path, writing: int) -> None:
    before, started = _peak(), time.perf_counter()
    told: dict[str, Any] = {"error": "", "sentence": ""}
    try:
        CASES[name][1](path)
    except UserError as error:
        told = {"error": "UserError", "sentence": str(error)}
    except BaseException as error:  # noqa: BLE001 - what must not happen is told as well
        told = {"error": type(error).__name__, "sentence": str(error)[:200]}
    told["seconds"] = round(time.perf_counter() - started, 3)
    told["megabytes"] = round((_peak() - before) / 1e6, 1)
    os.write(writing, json.dumps(told).encode())


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    wanted = sys.argv[1:] or list(CASES)
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            # Made in a child, too: what making it takes must not hide what reading it takes.
            pid = os.fork()
            if pid == 0:
                path = CASES[name][0](Path(folder))
                (Path(folder) / ".path").write_text(str(path))
                os._exit(0)
            os.waitpid(pid, 0)
            path = Path((Path(folder) / ".path").read_text())
            print(json.dumps(read_alone(name, path)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
