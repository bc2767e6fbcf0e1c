"""Encodes NumPy arrays and pandas tables by their contents, however they are stored."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hesrpt.jobs.value_encoding import Encoder


def encode_array(encoder: Encoder, value: Any) -> bytes | None:
    """Return the encoding of an array or a table; None if the value is neither."""
    if type(value) is np.ndarray:
        return _encode_numpy(encoder, value)
    if isinstance(value, np.generic):
        return encoder.combine("number", [_encode_numpy(encoder, np.asarray(value))])
    if isinstance(value, np.dtype):
        return encoder.combine("dtype", [encoder.encode(repr(value))])
    if "pandas" in sys.modules and any(
        kind.__module__.startswith("pandas.") for kind in type(value).__mro__
    ):
        return _encode_pandas(encoder, value, sys.modules["pandas"])
    return None


def _encode_numpy(encoder: Encoder, array: np.ndarray[Any, Any]) -> bytes:
    dtype = array.dtype
    head = [
        encoder.encode(dtype.str if dtype.isbuiltin else repr(dtype)),
        encoder.encode(array.shape),
    ]
    if dtype.names is not None:  # between the fields there may be bytes without a meaning
        return encoder.combine(
            "record", [*head, *(_encode_numpy(encoder, array[name]) for name in dtype.names)]
        )
    if dtype.hasobject or dtype.kind == "T":
        return encoder.combine("objects", [*head, encoder.encode(array.ravel().tolist())])
    return encoder.combine("array", [*head, array.tobytes()])


def _encode_pandas(encoder: Encoder, value: Any, pandas: Any) -> bytes | None:
    if isinstance(value, pandas.DataFrame):
        columns = [value.iloc[:, number].array for number in range(value.shape[1])]
        parts = [value.columns, value.index, value.attrs, *columns]
    elif isinstance(value, pandas.Series):
        parts = [value.name, value.index, value.attrs, value.array]
    elif isinstance(value, pandas.Index):
        parts = [list(value.names), str(value.dtype), value.tolist()]
    elif isinstance(value, pandas.api.extensions.ExtensionArray):
        if isinstance(value.dtype, pandas.api.extensions.ExtensionDtype):
            parts = [value.dtype, value.to_numpy(dtype=object)]
        else:
            parts = [value.to_numpy()]
    else:
        return None
    return encoder.combine("table", encoder.encode_all([type(value), *parts]))
