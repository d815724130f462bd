"""Serve bundles over HTTP. Nothing here imports torch or the training code."""
