"""How many servers fit on each node, estimated from Ray's late reports of free resources."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import ray

from hesrpt.engines.ray import cluster
from hesrpt.engines.ray.cluster import ClusterView, OwnServers

Report = Callable[[dict[str, float]], None]


@pytest.fixture
def report_free(monkeypatch: pytest.MonkeyPatch) -> Report:
    """Return a function that sets the free CPUs of the nodes, each of which has four."""

    def report(free: dict[str, float]) -> None:
        nodes = [
            {
                "NodeID": name,
                "Alive": True,
                "Resources": {"CPU": 4.0},
                "NodeManagerAddress": name,
                "NodeManagerPort": 1,
            }
            for name in free
        ]
        dead = {"NodeID": "dead", "Alive": False, "Resources": {"CPU": 99.0}}
        monkeypatch.setattr(ray, "nodes", lambda: [*nodes, dead])
        monkeypatch.setattr(
            cluster,
            "available_resources_per_node",
            lambda: {name: {"CPU": cpus} for name, cpus in free.items()},
        )

    return report


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the set of nodes that answer, which a test may change."""
    nodes = {"a", "b"}
    monkeypatch.setattr(cluster, "accepts_connections", lambda address: address[0] in nodes)
    return nodes


def test_room_excludes_resources_used_by_others(report_free: Report) -> None:
    view = ClusterView({"CPU": 1.5})
    report_free({"a": 4.0, "b": 3.0, "c": 1.0})
    view.refresh({})
    assert view.room == {"a": 2, "b": 2}


@pytest.mark.parametrize("free", [4.0, 3.0, 2.0])
def test_new_servers_are_not_counted_as_used_by_others(report_free: Report, free: float) -> None:
    view = ClusterView({"CPU": 1})
    report_free({"a": 4.0})
    view.refresh({})
    report_free({"a": free})  # the report includes none, one or both of our servers
    view.refresh({"a": OwnServers(ready=2, surely_reported=0, possibly_reported=2)})
    assert view.room == {"a": 4}


def test_stopping_servers_does_not_change_the_use_by_others(report_free: Report) -> None:
    view = ClusterView({"CPU": 1})
    report_free({"a": 1.0})
    view.refresh({"a": OwnServers(ready=2, surely_reported=2, possibly_reported=2)})
    assert view.room == {"a": 3}, "others use one CPU"
    for free in (1.0, 2.0, 3.0):
        report_free({"a": free})
        view.refresh({"a": OwnServers(possibly_reported=2)})
        assert view.room == {"a": 3}


def test_unambiguous_reports_update_the_use_by_others(report_free: Report) -> None:
    view = ClusterView({"CPU": 1})
    for free, room in ((3.0, 4), (1.0, 2), (2.0, 3)):
        report_free({"a": free})
        view.refresh({"a": OwnServers(ready=1, surely_reported=1, possibly_reported=1)})
        assert view.room == {"a": room}


def test_avoided_node_keeps_only_the_servers_that_are_ready(report_free: Report) -> None:
    view = ClusterView({"CPU": 1})
    report_free({"a": 3.0, "b": 4.0})
    view.avoid("a", seconds=60)
    view.avoid("b", seconds=0)
    view.refresh({"a": OwnServers(ready=1, surely_reported=1, possibly_reported=1)})
    assert view.room == {"a": 1, "b": 4}


def test_unreachable_node_has_no_room_until_it_answers_again(
    report_free: Report, answering: set[str]
) -> None:
    view = ClusterView({"CPU": 1})
    report_free({"a": 4.0, "b": 4.0})
    view.refresh({})
    answering.remove("b")
    assert view.probe("a")
    assert not view.probe("b")
    assert not view.probe("never heard of")
    view.refresh({})
    assert view.room == {"a": 4}
    answering.add("b")
    view.refresh({})
    assert view.room == {"a": 4, "b": 4}
