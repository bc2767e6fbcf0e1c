"""Pools in a real notebook: what a cell shows, and functions that are defined in cells."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = [
    """
import time, threading
import hesrpt

def square(x):
    time.sleep(0.01)
    return x * x

factor = 3
pool = hesrpt.Pool(2, "equi")
squares = pool.map(square, range(20), name="<squares>")
multiples = pool.map(lambda x: factor * x, range(5), name="multiples")
with pool.progress():
    pool.map(square, range(3), name="added")
assert squares.results() == [x * x for x in range(20)]
assert multiples.results() == [0, 3, 6, 9, 12]
""",
    "pool.progress()\nhave_ended = pool.wait()",
    "pool",
    "squares",
    """
bad = pool.map(lambda x: 1 / x, [0], name="bad", retries=0)  # the line of the cell
bad.wait()
executor = pool.executor("calls")
error = executor.submit(lambda x: 2 / x, 0).exception()
executor.shutdown()
print(bad.failures[0].traceback, error.__cause__)
""",
    "pool.close()\npool",
    "hesrpt.plan(hesrpt.Workload([3, 2, 1], hesrpt.PowerLaw(0.5)), 4).plot()",
]


@pytest.mark.slow
def test_notebook_shows_progress_as_html() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    following, again, pool, job, _, closed = (
        [output["data"]["text/html"] for output in cell.outputs if "data" in output]
        for cell in notebook.cells[:-1]
    )
    for html in (following, again, pool):
        (table,) = html
        assert table.count('style="width:100%;') == 3  # all bars are full
        assert "&lt;squares&gt;" in table
        assert "<squares>" not in table
        assert "2 servers, policy equi, 3 done" in table
    assert "20/20" in job[0]
    assert "multiples" not in job[0]
    assert "closed, 2 servers" in closed[0]
    # The lines of source code are known only to the process of the notebook.
    tracebacks = notebook.cells[-3].outputs[0]["text"]
    assert "in <lambda>\n    bad = pool.map(lambda x: 1 / x, [0], name" in tracebacks
    assert "in <lambda>\n    error = executor.submit(lambda x: 2 / x, 0)" in tracebacks
    assert notebook.cells[-1].outputs[0]["data"]["image/png"]
    assert notebook.cells[-1].outputs[0]["metadata"]["image/png"] == {"width": 700, "height": 460}
