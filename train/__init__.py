"""Train multi-label classifiers: `python -m train METHOD --dataset NAME`. Importing this package never imports torch."""
