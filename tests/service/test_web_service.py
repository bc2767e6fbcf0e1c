"""Searches for garbage look at new objects only, and still find all garbage in the end."""

from __future__ import annotations

import gc
import weakref

from hesrpt.service.web_service import (
    collect_all,
    keep_collections_short,
    load_without_collections,
)


class Knot:
    """An object that refers to itself, so that only a search can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_survivors_are_left_out_until_all_objects_are_searched() -> None:
    with keep_collections_short(lambda: True):
        old, new = Knot(), Knot()
        seen, unseen = weakref.ref(old), weakref.ref(new)
        del new
        gc.collect()
        assert unseen() is None
        assert gc.get_freeze_count() > 0
        del old
        gc.collect()
        assert seen() is not None  # it has survived a search, and became garbage later
        collect_all()
        assert seen() is None
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_nothing_is_searched_while_something_is_loaded() -> None:
    with load_without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    gc.unfreeze()
