"""The environment variables that tell libraries which GPUs they may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: Read by NVIDIA's libraries, and by AMD's.
_CUDA, _HIP = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"


def choose_gpu_variables(gpus: Sequence[int], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a process that may use these GPUs, and no others.

    If the scheduler itself may use only some GPUs, indices count among these.

    >>> choose_gpu_variables((0, 1), {})
    {'CUDA_VISIBLE_DEVICES': '0,1', 'HIP_VISIBLE_DEVICES': '0,1'}
    >>> choose_gpu_variables((1,), {"CUDA_VISIBLE_DEVICES": "4,5"})
    {'CUDA_VISIBLE_DEVICES': '5', 'HIP_VISIBLE_DEVICES': '5'}
    >>> choose_gpu_variables((), {})
    {'CUDA_VISIBLE_DEVICES': '', 'HIP_VISIBLE_DEVICES': '-1'}
    """
    if not gpus:
        return {_CUDA: "", _HIP: "-1"}  # an empty text would not hide AMD's
    allowed = [name for name in environment.get(_CUDA, "").split(",") if name.strip()]
    names = [allowed[gpu].strip() if gpu < len(allowed) else str(gpu) for gpu in gpus]
    return {_CUDA: ",".join(names), _HIP: ",".join(names)}
