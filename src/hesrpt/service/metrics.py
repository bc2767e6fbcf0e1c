"""What Prometheus scrapes: the state of the queue as text."""

from __future__ import annotations

from collections.abc import Iterable

from hesrpt.service.event_stream import EventStream
from hesrpt.service.job_queue import JobQueue
from hesrpt.service.views import count_states

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Sample = tuple[str, float]  # labels and a value


def write_metrics(queue: JobQueue, events: EventStream) -> str:
    """Return all metrics.

    Counters start at zero when the service starts.
    """
    core, jobs = queue.driver.core, queue.list_jobs()
    stock = core.stock.describe()
    done_items = sum(job.done_now for job in list(queue.driver.jobs.values()))
    failed = sum(job.failed_attempts for job in list(queue.driver.jobs.values()))
    flow_times = [
        job.ended - job.arrived
        for job in jobs
        if job.ended is not None and job.arrived is not None and job.state == "done"
    ]
    states = [(f'{{state="{state}"}}', n) for state, n in count_states(jobs).items()]
    return "".join(
        [
            _write("jobs", "gauge", "Jobs in each state.", states),
            _write("servers", "gauge", "Servers that there are.", [("", core.servers)]),
            _write("servers_held", "gauge", "Servers that jobs hold.", [("", core.observed)]),
            _write(
                "items_done_total", "counter", "Items done since the start.", [("", done_items)]
            ),
            _write("attempts_failed_total", "counter", "Failed attempts of items.", [("", failed)]),
            _write(
                "flow_time_seconds_sum",
                "counter",
                "Of jobs that are done.",
                [("", sum(flow_times))],
            ),
            _write("flow_time_seconds_count", "counter", "Done jobs.", [("", len(flow_times))]),
            _write("watchers", "gauge", "Clients that watch.", [("", events.watchers)]),
            _write(
                "resource_total",
                "gauge",
                "What there is of each kind.",
                [(f'{{kind="{_escape(kind)}"}}', total) for kind, (total, _) in stock.items()],
            ),
            _write(
                "resource_free",
                "gauge",
                "What is free of each kind.",
                [(f'{{kind="{_escape(kind)}"}}', free) for kind, (_, free) in stock.items()],
            ),
        ]
    )


def _write(name: str, kind: str, text: str, samples: Iterable[_Sample]) -> str:
    lines = [f"# HELP hesrpt_{name} {text}", f"# TYPE hesrpt_{name} {kind}"]
    lines += [f"hesrpt_{name}{labels} {value:.12g}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
