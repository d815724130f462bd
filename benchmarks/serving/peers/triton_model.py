"""Triton's Python backend with ONNX Runtime; its own ONNX backend is in no package."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance; Triton gives it all requests of a batch at once."""

    def initialize(self, args):  # noqa: ANN001, ANN201 - Triton's interface
        """Load the graph."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        graph = Path(args["model_repository"]).parent / "model.onnx"
        self.session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])

    def execute(self, requests):  # noqa: ANN001, ANN201 - Triton's interface
        """Score the rows of all requests in one call."""
        tensors = [pb_utils.get_input_tensor_by_name(r, "features").as_numpy() for r in requests]
        feed = {"features": np.concatenate(tensors), "k": np.array(5, np.int64)}
        scores, labels = self.session.run(["top_scores", "top_labels"], feed)
        responses, start = [], 0
        for tensor in tensors:
            end = start + len(tensor)
            outputs = [
                pb_utils.Tensor("top_scores", scores[start:end]),
                pb_utils.Tensor("top_labels", labels[start:end]),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
            start = end
        return responses
