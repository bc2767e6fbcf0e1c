"""The user's script of a trial: Python jobs in a pool with a state directory.

It appends what the pool reports to a file of its own, as each job is reported done.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path

from chaos.items import Item, append_line, create_payload, record_process, run_item
from chaos.processes import FORK_OF_SCRIPT
from hesrpt import JobError, Pool

# More often than a campaign can kill one item.
RETRIES = 10_000


def run_script(plan_path: Path) -> None:
    """Run the jobs of a plan; report the keys of the items whose results were right."""
    plan = json.loads(plan_path.read_text())
    report = Path(plan["report"])
    pool = Pool(plan["servers"], state=plan["state"], resume=plan["resume"])
    with pool:
        indices = {}
        for index, job in enumerate(plan["jobs"]):
            items = [Item(*item) for item in job["items"]]
            handle = pool.map(
                run_item,
                iter(items) if job["is_streamed"] else items,
                name=job["name"],
                retries=RETRIES if job["on_error"] is None else 0,
                on_error=job["on_error"] or "raise",
                timeout=job["timeout"],
            )
            indices[handle.name] = index
        calls = [Item(*item) for item in plan["calls"]]
        executor = pool.executor("calls") if calls else None
        futures = [] if executor is None else [executor.submit(run_item, call) for call in calls]
        if executor is not None:
            executor.shutdown(wait=False)
        if plan["forks"] and os.fork() == 0:
            record_process(plan["directory"], FORK_OF_SCRIPT)
            time.sleep(30)
            os._exit(0)
        for job_handle in pool.as_completed():
            if job_handle.name not in indices:
                continue
            index = indices[job_handle.name]
            while job_handle.state == "failed":
                job_handle.retry()
                job_handle.wait()
            expected = [Item(*item) for item in plan["jobs"][index]["items"]]
            sizes = {item.key: item for item in expected}
            results = []
            for key, payload in job_handle.results():
                is_right = key in sizes and payload == create_payload(sizes[key])
                results.append(key if is_right else f"{key} with wrong bytes")
            entry = {
                "life": plan["life"],
                "job": index,
                "results": results,
                "time": time.monotonic(),
            }
            append_line(report, json.dumps(entry))
        for call, future in zip(calls, futures, strict=True):
            try:
                key, payload = future.result()
            except (JobError, CancelledError, RuntimeError, ValueError):
                continue  # a killed call fails its future
            if (key, payload) != (call.key, create_payload(call)):
                append_line(report, json.dumps({"life": plan["life"], "wrong call": call.key}))
    append_line(report, json.dumps({"life": plan["life"], "is_complete": True}))


if __name__ == "__main__":
    run_script(Path(sys.argv[1]))
