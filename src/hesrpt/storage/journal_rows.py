"""Rows of the journal's database, each with a checksum, and the entries that they stand for."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any
from zlib import crc32

from hesrpt.decisions.kinds import LearnedRun
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.speedups import PowerLaw, Speedup
from hesrpt.storage.journal_entries import FailedAttempt, FinishedItem, Holding, JobRecord

#: A row without its checksum, or with it as the last value.
Row = tuple[Any, ...]

JOB_COLUMNS = "number, name, spec, fingerprint, items, size, p, arrived, ended, error, checksum"
HOLDING_COLUMNS = "time, job, servers, checksum"
LEARNED_COLUMNS = "number, kind, durations, checksum"
FAILURE_COLUMNS = (
    "job, position, time, round, is_last, attempts, value, error, traceback, exception, checksum"
)
ITEM_COLUMNS = "job, key, position, seconds, ended, digest, checksum"

_CHECKSUM_BYTES = 16
# Results of at most so many bytes have short checksums, as rows of items do: there may be millions.
_SHORT_BYTES = 4096
# Of an item: its job, position, duration and end, and the length of its key.
_ITEM_NUMBERS = struct.Struct("<qqddQ")
_SHORT_CHECKSUM = struct.Struct("<I")


def hash_content(content: bytes) -> bytes:
    """Return a checksum that no other content has."""
    return blake2b(content, digest_size=_CHECKSUM_BYTES).digest()


def compute_digest(content: bytes) -> bytes:
    """Return the checksum of a result."""
    if len(content) > _SHORT_BYTES:
        return hash_content(content)
    return _SHORT_CHECKSUM.pack(crc32(content))


def seal(values: Row) -> Row:
    """Return a row with its checksum."""
    return (*values, hash_content(repr(values).encode("utf-8", "backslashreplace")))


def is_intact(row: Sequence[Any]) -> bool:
    """Return whether a row is as :func:`seal` returned it."""
    return seal(tuple(row[:-1])) == tuple(row)


def create_job_row(record: JobRecord) -> Row:
    """Return the row of a job."""
    return seal(
        (
            record.number,
            record.name,
            record.spec.to_json(),
            record.fingerprint,
            record.items,
            _to_real(record.size),
            _get_power(record.speedup),
            _to_real(record.arrived),
            _to_real(record.ended),
            record.error,
        )
    )


def create_record(row: Row, done: int, item_seconds: float, failures: int) -> JobRecord:
    """Return the record of a job's row, given the numbers of its finished items and failures."""
    number, _, spec, fingerprint, items, size, p, arrived, ended, error, _ = row
    return JobRecord(
        spec=JobSpec.from_json(spec),
        number=number,
        fingerprint=fingerprint,
        arrived=arrived,
        ended=ended,
        error=error,
        items=items,
        done=done,
        failures=failures,
        item_seconds=item_seconds,
        size=size,
        speedup=None if p is None else PowerLaw(p),
    )


def create_item_row(item: FinishedItem, digest: bytes) -> Row:
    """Return the row of a finished item, without its result."""
    job, key, position, seconds, ended, _ = item
    return seal_item((job, key, position, seconds + 0.0, ended + 0.0, digest))


def seal_item(values: Row) -> Row:
    """Return the row of an item with its checksum. There may be millions, so this is quick."""
    return (*values, _compute_item_checksum(*values))


def is_item_intact(row: Sequence[Any]) -> bool:
    """Return whether a row is as :func:`seal_item` returned it."""
    *values, checksum = row
    try:
        return bool(_compute_item_checksum(*values) == checksum)
    except (struct.error, TypeError):  # a value has another type
        return False


def _compute_item_checksum(
    job: int, key: bytes, position: int, seconds: float, ended: float, digest: bytes
) -> bytes:
    packed = _ITEM_NUMBERS.pack(job, position, seconds, ended, len(key))
    return _SHORT_CHECKSUM.pack(crc32(packed + key + digest))


def move_item_row(row: Row, position: int) -> Row:
    """Return the row of a finished item at another position."""
    job, key, _, *others, _ = row
    return seal_item((job, key, position, *others))


def create_holding_row(holding: Holding) -> Row:
    """Return the row of a change in the servers that a job holds."""
    return seal((_to_real(holding.time), holding.job, holding.servers))


def create_learned_row(run: LearnedRun) -> Row:
    """Return the row of how long the items of a job took in one run."""
    return seal((run.number, run.kind, run.to_json()))


def create_failure_row(attempt: FailedAttempt) -> Row:
    """Return the row of a failed attempt."""
    failure = attempt.failure
    return seal(
        (
            attempt.job,
            failure.item,
            _to_real(attempt.time),
            attempt.round,
            int(attempt.is_last),
            failure.attempts,
            failure.value,
            failure.error,
            failure.traceback,
            failure.pickled_exception,
        )
    )


def create_failure(row: Row) -> ItemFailure:
    """Return the failure of an item, given the row of its last attempt."""
    _, item, _, _, _, attempts, value, error, traceback, exception, _ = row
    return ItemFailure(
        item=item,
        value=value,
        attempts=attempts,
        error=error,
        traceback=traceback,
        pickled_exception=exception,
    )


def _to_real(value: float | None) -> float | None:
    """Return a number as the database returns it: a float, and never -0.0."""
    return None if value is None else float(value) + 0.0


def _get_power(speedup: Speedup | None) -> float | None:
    return speedup.p if isinstance(speedup, PowerLaw) else None
