"""Stands where PyTorch would, for tests without a GPU: the functions that a capture calls, with their signatures in PyTorch 2.11.
Its history is that of a real recording, FAKE_SNAPSHOT."""

import os

if os.environ.get("FAKE_TORCH_IS_BROKEN"):
    raise ImportError("libcudart.so.13: cannot open shared object file")

__version__ = "2.11.0+cu130"


class version:
    cuda = "13.0"


class compiler:
    @staticmethod
    def is_compiling():
        return False


class _C:
    observers = []

    @staticmethod
    def _cuda_attach_out_of_memory_observer(observer):
        _C.observers.append(observer)


class _Storage:
    def data_ptr(self):
        return 4096


class Tensor:
    def record_stream(self, stream):
        pass

    def untyped_storage(self):
        return _Storage()


from . import cuda, optim  # noqa: E402,F401
