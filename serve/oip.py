"""The Open Inference Protocol, version 2: `POST /v2/models/NAME[/versions/VERSION]/infer`.

One input, `features` FP32 (rows, width) or `text` BYTES (rows,); outputs `scores` (rows, labels),
`top_scores`, `top_labels` and `labels` (rows, top_k), where `top_k` is a parameter of the request.
Tensors come and go as JSON or, by the binary-tensor extension, as bytes after the JSON. By the
classification extension `scores` may also be asked for as text, "score:column:name" of the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from serve import api
from serve.errors import (
    ASK_FOR_KEY,
    InvalidInputError,
    MalformedBodyError,
    Reply,
    RetryLaterError,
    UnauthorizedError,
    error_message,
    status_and_type,
)
from serve.exchange import Exchange, Headers
from serve.inputs import Rows
from serve.kinds import kind_of
from serve.predictor import Scored
from serve.quickjson import quick_tensors
from serve.rows import RowRules, parse_rows, rows_of_array
from train.errors import did_you_mean

if TYPE_CHECKING:
    from serve.batching import Finished, MicroBatcher
    from serve.names import Names
    from serve.service import LoadedModel

INPUT, TEXT_INPUT = "features", "text"
DATATYPES = {"scores": "FP32", "top_scores": "FP32", "top_labels": "INT64", "labels": "BYTES"}
NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "INT64": np.dtype("<i8"),
}
INPUT_TYPES = ("FP32", "FP64")
JSON_LENGTH = b"inference-header-content-length"
OCTETS = b"application/octet-stream"


@dataclass(frozen=True, slots=True)
class Output:
    """One output that a request asks for."""

    name: str
    is_binary: bool
    classes: int
    """By the classification extension: so many labels as text; 0: the tensor itself."""


@dataclass(frozen=True, slots=True)
class InferCall:
    """A request that can be answered."""

    rows: Rows
    k: int
    outputs: Sequence[Output]
    id: str | None

    @property
    def needs_scores(self) -> bool:
        """Whether the scores of all labels are asked for."""
        return any(output.name == "scores" and not output.classes for output in self.outputs)


class InferRoute:
    """Reads and writes the protocol's requests."""

    path = "/v2/models/{name}/infer"

    def admit(self, headers: Headers) -> None:
        """Take any content type: clients declare what they like, and the protocol does not say."""

    def parse(self, exchange: Exchange, body: bytes, names: Names) -> InferCall:
        """Choose the model by the address and read the tensors."""
        target = exchange.target
        exchange.model = model = names.choose_version(target.model or "", target.version)
        payload, tail = _payload(body, exchange.headers.get(JSON_LENGTH))
        parameters = _object(payload, "parameters")
        timeout = parameters.get("timeout")
        if timeout:
            exchange.deadline = exchange.started + _microseconds(timeout) / 1e6
        rows = _rows(payload.get("inputs"), tail, model.wire.rules)
        outputs = _outputs(payload, is_binary=parameters.get("binary_data_output") is True)
        k = api.call_of({"top_k": parameters.get("top_k")}, rows, model.wire).k
        for output in outputs:
            if output.classes > model.wire.label_count:
                raise InvalidInputError(
                    f'"classification" must be at most {model.wire.label_count}, the number of '
                    f"labels, got {output.classes}"
                )
            k = max(k, output.classes)
        request_id = payload.get("id")
        return InferCall(rows, k, outputs, None if request_id is None else str(request_id))

    def batcher(self, model: LoadedModel) -> MicroBatcher:
        """The queue of the model."""
        return model.batcher

    def answer(self, exchange: Exchange, finished: Finished, latency: api.Latency) -> Reply:
        """The outputs that were asked for, those in bytes after the JSON."""
        call, model, answer = exchange.call, exchange.loaded, finished.answer
        assert isinstance(call, InferCall)  # noqa: S101 - see `parse`
        assert isinstance(answer, Scored)  # noqa: S101 - see `batcher`
        tail: list[bytes] = []
        head: dict[str, Any] = {
            "model_name": model.wire.name,
            "model_version": model.manifest.version,
            "outputs": [_output(output, call, answer, model, tail) for output in call.outputs],
        }
        if call.id is not None:
            head["id"] = call.id
        text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
        if not tail:
            return Reply(200, text, exchange.request_id)
        more = [(JSON_LENGTH, b"%d" % len(text))]
        return Reply(200, b"".join([text, *tail]), exchange.request_id, OCTETS, more)

    def problem(self, error: Exception, request_id: str) -> Reply:
        """The protocol's error shape: the sentence alone."""
        return oip_problem(error, request_id)


def oip_problem(error: Exception, request_id: str) -> Reply:
    """An error in the shape of this protocol; everything but the body is as everywhere."""
    status, _ = status_and_type(error)
    headers = []
    if isinstance(error, RetryLaterError):
        headers.append((b"retry-after", str(error.retry_after).encode()))
    if isinstance(error, UnauthorizedError):
        headers.append(ASK_FOR_KEY)
    body = orjson.dumps({"error": error_message(error)})
    return Reply(status, body, request_id, more=headers)


def metadata(model: LoadedModel, versions: Sequence[str]) -> dict[str, Any]:
    """What the protocol tells of a model and the versions that are loaded."""
    labels = model.manifest.label_count
    last_axis = {"scores": labels}
    return {
        "name": model.wire.name,
        "versions": versions,
        "platform": "onnxruntime_onnx",
        "inputs": [_input_spec(model.wire.rules)],
        "outputs": [
            {"name": name, "datatype": datatype, "shape": [-1, last_axis.get(name, -1)]}
            for name, datatype in DATATYPES.items()
        ],
    }


def _input_spec(rules: RowRules) -> dict[str, Any]:
    if rules.kind in ("text", "words"):
        return {"name": TEXT_INPUT, "datatype": "BYTES", "shape": [-1]}
    return {"name": INPUT, "datatype": "FP32", "shape": [-1, rules.width]}


def _payload(body: bytes, json_length: bytes | None) -> tuple[dict[str, Any], memoryview]:
    """The JSON of a request, and the bytes of tensors after it."""
    end = len(body)
    if json_length is not None:
        end = int(json_length) if json_length.isdigit() else -1
        if not 0 <= end <= len(body):
            raise MalformedBodyError(
                f"Inference-Header-Content-Length must be 0 to {len(body)}, the size of the body, "
                f"got {json_length.decode('latin-1')[:20]!r}"
            )
    text = body if end == len(body) else body[:end]
    payload = (quick_tensors(text) if end == len(body) else None) or _slow_payload(text)
    return payload, memoryview(body)[end:]


def _slow_payload(text: bytes) -> dict[str, Any]:
    try:
        payload = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MalformedBodyError(
            f"the body is not JSON: {error.msg} at position {error.pos}"
        ) from error
    if not isinstance(payload, dict):
        raise InvalidInputError(f"the body must be an object, got {kind_of(payload)}")
    return payload


def _rows(inputs: object, tail: memoryview, rules: RowRules) -> Rows:
    """The one input of a request, as the model takes it."""
    if rules.kind == "words":
        raise InvalidInputError("this model takes rows of words: send them to POST /predict")
    wanted = TEXT_INPUT if rules.kind == "text" else INPUT
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise InvalidInputError(f'"inputs" must be a list of one tensor, {wanted!r}')
    tensor = inputs[0]
    name, shape = tensor.get("name"), tensor.get("shape")
    if name != wanted:
        raise InvalidInputError(f"the input must be {wanted!r}, got {str(name)[:40]!r}")
    if not isinstance(shape, list) or not all(type(axis) is int and axis > 0 for axis in shape):
        raise InvalidInputError(f'"shape" of input {wanted!r} must be a list of lengths')
    values = _texts_of(tensor, tail) if wanted == TEXT_INPUT else _numbers(tensor, tail)
    if len(values) != math.prod(shape):
        raise InvalidInputError(
            f"input {wanted!r} has the shape {shape} and must hold {math.prod(shape)} values, "
            f"got {len(values)}"
        )
    if isinstance(values, list):
        return parse_rows(values, rules, with_booleans=False)
    if len(shape) != 2:
        raise InvalidInputError(f'"shape" of input {wanted!r} must be [rows, {rules.width}]')
    return rows_of_array(values.reshape(shape), rules)


def _texts_of(tensor: dict[str, Any], tail: memoryview) -> list[Any]:
    if tensor.get("datatype") != "BYTES":
        raise InvalidInputError(f"input {TEXT_INPUT!r} must be BYTES")
    if "binary_data_size" not in _object(tensor, "parameters"):
        data = tensor.get("data")
        return data if isinstance(data, list) else [data]
    texts, start = [], 0
    while start < len(tail):
        end = start + 4 + int.from_bytes(tail[start : start + 4], "little")
        try:
            texts.append(str(tail[start + 4 : end], "utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"row {len(texts)} must be UTF-8: {error.reason}") from error
        start = end
    return texts


def _numbers(tensor: dict[str, Any], tail: memoryview) -> NDArray[Any]:
    datatype = tensor.get("datatype")
    if datatype not in INPUT_TYPES:
        raise InvalidInputError(f"input {INPUT!r} must be FP32 or FP64, got {str(datatype)[:40]!r}")
    size = _object(tensor, "parameters").get("binary_data_size")
    if size is None:
        return _json_numbers(tensor.get("data"))
    dtype = NUMPY_TYPES[str(datatype)]
    if type(size) is not int or size != len(tail) or size % dtype.itemsize:
        raise InvalidInputError(
            f'"binary_data_size" of input {INPUT!r} is {str(size)[:20]}, and {len(tail)} bytes '
            "follow the JSON"
        )
    return np.frombuffer(tail, dtype)


def _json_numbers(data: object) -> NDArray[Any]:
    if isinstance(data, np.ndarray):
        return data
    numbers: list[float] = []
    rows: list[Any] = data if isinstance(data, list) else [None]
    for row in rows:
        for value in row if isinstance(row, list) else [row]:
            if type(value) not in (int, float):
                raise InvalidInputError(
                    f'"data" of input {INPUT!r} must hold numbers only, got {kind_of(value)}'
                )
            numbers.append(value)
    return np.array([float(number) for number in numbers])


def _outputs(payload: dict[str, Any], *, is_binary: bool) -> list[Output]:
    asked = payload.get("outputs")
    if not asked:
        return [Output(name, is_binary, 0) for name in DATATYPES]
    if not isinstance(asked, list) or not all(isinstance(output, dict) for output in asked):
        raise InvalidInputError('"outputs" must be a list of objects with a "name"')
    return [_asked_output(output, is_binary=is_binary) for output in asked]


def _asked_output(asked: dict[str, Any], *, is_binary: bool) -> Output:
    name = asked.get("name")
    if not isinstance(name, str) or name not in DATATYPES:
        hint = did_you_mean(str(name)[:40], DATATYPES)
        raise InvalidInputError(f"there is no output {str(name)[:40]!r}: {hint}")
    parameters = _object(asked, "parameters")
    classes = parameters.get("classification", 0)
    if type(classes) is not int or classes < 0 or (classes and name != "scores"):
        raise InvalidInputError('"classification" must be a whole number, for output "scores" only')
    return Output(name, parameters.get("binary_data", is_binary) is True, classes)


def _object(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInputError(f'"{name}" must be an object, got {kind_of(value)}')
    return value


def _microseconds(timeout: object) -> float:
    if type(timeout) is int and timeout > 0:
        return timeout
    raise InvalidInputError('"timeout" must be a whole number of microseconds')


def _output(
    output: Output, call: InferCall, scored: Scored, model: LoadedModel, tail: list[bytes]
) -> dict[str, Any]:
    """One output of an answer; its bytes, if it is binary, are appended to `tail`."""
    values, datatype = _tensor(output, call, scored, model)
    about: dict[str, Any] = {"name": output.name, "datatype": datatype, "shape": values.shape}
    if not output.is_binary:
        return {**about, "data": values.ravel().tolist() if datatype == "BYTES" else values.ravel()}
    if datatype == "BYTES":
        content = b"".join(map(_length_and_bytes, values.ravel()))
    else:
        content = values.astype(NUMPY_TYPES[datatype], copy=False).tobytes()
    tail.append(content)
    return {**about, "parameters": {"binary_data_size": len(content)}}


def _tensor(
    output: Output, call: InferCall, scored: Scored, model: LoadedModel
) -> tuple[NDArray[Any], str]:
    """Values and datatype; the batch may have been run with a larger k."""
    names = model.predictor.labels
    if output.classes:
        labels = scored.top_labels[:, : output.classes]
        scores = scored.top_scores[:, : output.classes]
        return _texts(
            labels, lambda i, label: f"{scores.flat[i]:f}:{label}:{names[label]}"
        ), "BYTES"
    if output.name == "labels":
        return _texts(scored.top_labels[:, : call.k], lambda _, label: names[label]), "BYTES"
    values = getattr(scored, output.name)
    best = values if output.name == "scores" else np.ascontiguousarray(values[:, : call.k])
    return best, DATATYPES[output.name]


def _texts(labels: NDArray[np.int64], text: Any) -> NDArray[Any]:  # noqa: ANN401 - a function
    values = np.empty(labels.size, dtype=object)
    values[:] = [text(i, label) for i, label in enumerate(labels.ravel().tolist())]
    return values.reshape(labels.shape)


def _length_and_bytes(text: str) -> bytes:
    content = text.encode()
    return len(content).to_bytes(4, "little") + content
