"""Asks a server with KServe's client, in an environment that has it: URL and rows in, JSON out."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

OUTPUTS = ("labels", "top_scores", "top_labels", "scores")


def _request(name: str, rows: np.ndarray, *, into: bool, out: bool) -> InferRequest:
    tensor = InferInput("features", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows, binary_data=into)
    outputs = [RequestedOutput(one, parameters={"binary_data": out}) for one in OUTPUTS]
    parameters = {"top_k": 3}
    return InferRequest(name, [tensor], "mine", parameters=parameters, request_outputs=outputs)


async def _answers(url: str, rows: np.ndarray) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    found: dict[str, Any] = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model": await client.is_model_ready(url, "tiny"),
        "answers": [],
    }
    for into in (False, True):
        for out in (False, True):
            asked = _request("tiny", rows, into=into, out=out)
            got = await client.infer(url, asked, model_name="tiny")
            arrays = {one.name: one.as_numpy().tolist() for one in got.outputs}
            found["answers"].append({"id": got.id, "model_name": got.model_name, **arrays})
    wrong = _request("tiny", rows[:, :2], into=False, out=False)
    for name, asked in (("nobody", _request("nobody", rows, into=True, out=True)), ("tiny", wrong)):
        try:
            await client.infer(url, asked, model_name=name)
        except httpx.HTTPStatusError as error:
            found[f"error of {name}"] = [error.response.status_code, str(error)]
    await client.close()
    return found


if __name__ == "__main__":
    numbers = np.array(json.loads(sys.argv[2]), dtype=np.float32)
    answers = asyncio.run(_answers(sys.argv[1], numbers))
    sys.stdout.write(json.dumps(answers, default=bytes.decode) + "\n")
