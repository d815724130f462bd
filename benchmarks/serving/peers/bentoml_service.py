"""A BentoML service with ONNX Runtime and adaptive batching."""

import os

import bentoml
import numpy as np
import onnxruntime as ort


@bentoml.service(workers=int(os.environ["WORKERS"]), traffic={"timeout": 30})
class Network:
    """One model."""

    def __init__(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(
            os.environ["GRAPH"], options, providers=["CPUExecutionProvider"]
        )

    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=10000)
    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Score rows: the best labels' columns and scores, side by side."""
        feed = {"features": inputs.astype(np.float32), "k": np.array(5, np.int64)}
        scores, labels = self.session.run(["top_scores", "top_labels"], feed)
        return np.concatenate([labels.astype(np.float64), scores], axis=1)
