"""Train multi-label classifiers: `python -m train METHOD --dataset NAME`."""
