from . import memory, nvtx  # noqa: F401
from .memory import empty_cache, memory_stats, reset_peak_memory_stats, set_per_process_memory_fraction  # noqa: F401

_queued_calls = []
_initialized = False


class _utils:
    @staticmethod
    def _get_device_index(device, optional=False):
        return 0 if device is None else device


class _Properties:
    name = "NVIDIA H200"
    total_memory = 150109880320


def is_initialized():
    return _initialized


def _lazy_call(callable, **kwargs):
    if is_initialized():
        callable()
    else:
        _queued_calls.append(callable)


def _lazy_init():
    global _initialized
    if not _initialized:
        for call in _queued_calls:
            call()
        _initialized = True


def current_device():
    return 0


def get_device_properties(device):
    return _Properties
