"""How many servers a load needs: a queueing model, measured numbers in it, and a check of it."""
