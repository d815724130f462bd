"""An MLServer runtime with ONNX Runtime."""

import os

import numpy as np
import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Network(MLModel):
    """One model, batched by MLServer."""

    async def load(self) -> bool:
        """Load the graph."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(
            os.environ["GRAPH"], options, providers=["CPUExecutionProvider"]
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Score rows."""
        rows = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        feed = {"features": rows, "k": np.array(5, np.int64)}
        scores, labels = self.session.run(["top_scores", "top_labels"], feed)
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                NumpyCodec.encode_output("top_scores", scores),
                NumpyCodec.encode_output("top_labels", labels),
            ],
        )
