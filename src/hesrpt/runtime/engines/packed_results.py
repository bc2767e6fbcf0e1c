"""The results of several items together: numbers as they are, others pickled one by one.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, overload

from hesrpt.runtime.engines.shared_files import Pickled

#: The codes of what results are: 64-bit integers, floats, or pickled values.
INTEGERS, FLOATS, PICKLED = "q", "d", "p"
#: The codes of types whose values can be written as they are.
NUMBER_CODES: dict[type, str] = {int: INTEGERS, float: FLOATS}
_PROTOCOL = pickle.HIGHEST_PROTOCOL
_NUMBER_BYTES = 8


class PackedResults(Sequence[bytes]):
    """Results of items. As a sequence, these are the pickled results.

    Parameters
    ----------
    code
        What they are: one of the codes of this module.
    content
        The results, one after another.
    sizes
        How many bytes each result has, if they are pickled.
    """

    __slots__ = ("_ends", "code", "content")

    def __init__(self, code: str, content: bytes, sizes: Sequence[int] = ()) -> None:
        self.code, self.content = code, content
        # Where each result ends, after a 0.
        self._ends = array("Q", accumulate(sizes, initial=0)) if code == PICKLED else array("Q")

    @classmethod
    def from_pickled(cls, results: Sequence[Pickled]) -> PackedResults:
        """Pack pickled results."""
        return cls(PICKLED, b"".join(results), [len(each) for each in results])

    def __len__(self) -> int:
        if self.code == PICKLED:
            return len(self._ends) - 1
        return len(self.content) // _NUMBER_BYTES

    @property
    def sizes(self) -> array[int]:
        """How many bytes each result has, if they are pickled."""
        return array("Q", [stop - start for start, stop in pairwise(self._ends)])

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> PackedResults: ...
    def __getitem__(self, place: int | slice) -> bytes | PackedResults:
        if isinstance(place, slice):
            start, stop, _ = place.indices(len(self))
            return self._cut(start, max(start, stop))
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        place %= len(self)
        if self.code == PICKLED:
            return self.content[self._ends[place] : self._ends[place + 1]]
        (number,) = self._cut(place, place + 1).load(pickle.loads)
        return pickle.dumps(number, _PROTOCOL)

    def _cut(self, start: int, stop: int) -> PackedResults:
        if start == 0 and stop == len(self):
            return self
        if self.code != PICKLED:
            return PackedResults(
                self.code, self.content[_NUMBER_BYTES * start : _NUMBER_BYTES * stop]
            )
        ends = self._ends[start : stop + 1]
        sizes = [b - a for a, b in pairwise(ends)]
        return PackedResults(PICKLED, self.content[ends[0] : ends[-1]], sizes)

    def load(self, unpickle: Callable[[bytes], Any]) -> list[Any]:
        """Return the results themselves."""
        if self.code != PICKLED:
            return array(self.code, self.content).tolist()
        return [unpickle(self.content[start:stop]) for start, stop in pairwise(self._ends)]
