"""The optimal plan of a batch: in closed form for k^p, by a recursion for any concave speedup."""
