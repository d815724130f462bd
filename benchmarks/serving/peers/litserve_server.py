"""A LitServe server with ONNX Runtime and batching."""

import os

import litserve as ls
import numpy as np
import onnxruntime as ort


class Network(ls.LitAPI):
    """One model."""

    def setup(self, device: str) -> None:
        """Load the graph."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(
            os.environ["GRAPH"], options, providers=["CPUExecutionProvider"]
        )

    def decode_request(self, request: dict) -> np.ndarray:
        """Rows of one request."""
        return np.array(request["inputs"], dtype=np.float32)

    def batch(self, inputs: list) -> list:
        """Keep requests apart, they may have different numbers of rows."""
        return inputs

    def predict(self, x: list) -> list:
        """Score the rows of all requests in one call."""
        feed = {"features": np.concatenate(x), "k": np.array(5, np.int64)}
        scores, labels = self.session.run(["top_scores", "top_labels"], feed)
        ends = np.cumsum([len(rows) for rows in x])[:-1]
        return list(zip(np.split(labels, ends), np.split(scores, ends), strict=True))

    def unbatch(self, output: list) -> list:
        """One answer for each request."""
        return output

    def encode_response(self, output: tuple) -> dict:
        """As JSON."""
        labels, scores = output
        return {"labels": labels.tolist(), "scores": scores.tolist()}


if __name__ == "__main__":
    api = Network(max_batch_size=64, batch_timeout=0.0)
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        num_api_servers=int(os.environ["WORKERS"]),
        generate_client_file=False,
        log_level="error",
    )
