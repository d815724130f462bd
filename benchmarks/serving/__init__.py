"""`python -m benchmarks.serving`: this server beside others, with the same graph in all of them."""
