"""Turn a trained `model.pt` into an ONNX bundle that is proved to give the same answers."""
