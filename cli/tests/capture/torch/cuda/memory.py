import os
import pickle
import time

_recording = None
_metadata = []


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=2**64 - 1, device=None, clear_history=False,
                           compile_context=False, global_record_annotations=False, skip_actions=None):
    global _recording
    _recording = {"context": context, "max_entries": max_entries}


def _snapshot(device=None, augment_with_fx_traces=False):
    assert _recording is not None, "the history was not switched on"
    time.sleep(float(os.environ.get("FAKE_SNAPSHOT_TAKES", "0")))
    with open(os.environ["FAKE_SNAPSHOT"], "rb") as file:
        return pickle.load(file)


def _set_memory_metadata(metadata):
    _metadata.append(metadata)


def empty_cache():
    pass


def reset_peak_memory_stats(device=None):
    pass


def memory_stats():
    return {"num_ooms": 0}


def set_per_process_memory_fraction(fraction, device=None):
    assert 0 <= fraction <= 1
