"""Runs a poolsim policy as PyTorch's CUDA allocator.

    import poolsim_torch
    poolsim_torch.install("target/release/libpoolsim_torch_plugin.so", policy="expandable", trace="run.pst")

before the first CUDA allocation of the process. What the job asked for and what the policy made of it is written when the
process ends. `record_stream` and `empty_cache` reach the policy through a few lines of C++ that PyTorch compiles on the first
use (it needs a C++ compiler and the CUDA headers); without them, blocks that several streams use may be reused too early, so
`install` fails unless `hooks=False` says that there are none.
"""

import ctypes
import os
import pathlib

import torch


class Poolsim:
    """The installed allocator."""

    def __init__(self, library):
        self._library = library
        library.poolsim_reserved.restype = ctypes.c_uint64
        library.poolsim_reserved.argtypes = [ctypes.c_int, ctypes.c_bool]

    def reserved(self, device=0, peak=False):
        """Bytes held from the device."""
        return self._library.poolsim_reserved(device, peak)

    def write(self):
        """Writes trace and statistics as they are now."""
        self._library.poolsim_write()


def install(library, policy=None, trace=None, stats=None, memory_fraction=None, hooks=True):
    """Makes a poolsim policy the allocator of this process."""
    settings = {
        "POOLSIM_POLICY": policy,
        "POOLSIM_TRACE": trace,
        "POOLSIM_STATS": stats,
        "POOLSIM_MEMORY_FRACTION": memory_fraction,
    }
    for name, value in settings.items():
        if value is not None:
            os.environ[name] = str(value)
    path = str(pathlib.Path(library).resolve())
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "poolsim_malloc", "poolsim_free")
    torch.cuda.memory.change_current_allocator(allocator)
    loaded = ctypes.CDLL(path)
    if hooks:
        _install_hooks(loaded)
    return Poolsim(loaded)


def _install_hooks(library):
    from torch.utils import cpp_extension

    source = pathlib.Path(__file__).with_name("poolsim_hooks.cpp")
    module = cpp_extension.load(
        name="poolsim_hooks",
        sources=[str(source)],
        with_cuda=True,
        is_python_module=False,
        extra_cflags=["-O1"],
    )
    compiled = ctypes.CDLL(module)
    address = lambda f: ctypes.cast(f, ctypes.c_void_p)
    if compiled.poolsim_install_hooks(address(library.poolsim_record_stream), address(library.poolsim_empty_cache)):
        raise RuntimeError("poolsim: another allocator was installed meanwhile")
