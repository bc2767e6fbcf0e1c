"""The optimum of a batch of jobs: in closed form for k^p, by a recursion for any speedup."""
