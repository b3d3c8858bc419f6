"""Records PyTorch's memory history in every Python process of a command that `poolsim capture` started.

Python imports this as `sitecustomize` at its start. It does nothing but watch for `torch`; when CUDA starts in a process, it
switches the history on, and it writes a snapshot whenever the process may end. Whatever goes wrong in here is said in one line and
leaves the job alone.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_SPOOL = os.environ.get("POOLSIM_CAPTURE_SPOOL", "")


def _say(what):
    try:
        sys.stderr.write(f"poolsim capture: {what}; the job goes on\n")
    except Exception:
        pass


class _Recorder:
    """The history of this process."""

    def __init__(self, torch):
        self.torch = torch
        self.pid = None
        self.lock = None
        self.fraction = None
        self.steps = 0
        self.busy = False
        self.last_oom = 0.0

    def start(self):
        """Called by torch when CUDA starts, once in each process that uses it."""
        try:
            self._start()
        except Exception as error:
            _say(f"memory history could not be switched on in process {os.getpid()}: {error}")

    def _start(self):
        import atexit
        import threading

        if self.pid == os.getpid():
            return
        self.pid, self.lock = os.getpid(), threading.Lock()
        stacks = os.environ.get("POOLSIM_CAPTURE_STACKS") == "1"
        self.torch.cuda.memory._record_memory_history(
            context="all" if stacks else None,
            stacks="python",
            max_entries=int(os.environ["POOLSIM_CAPTURE_ENTRIES"]),
        )
        atexit.register(self.write, "exit")
        for part in (self._begin, self._watch_children, self._watch_signals, self._watch_refusals, self._mark_steps):
            try:
                part()
            except Exception as error:
                _say(f"a part of the recording is missing ({part.__name__.strip('_')}): {error}")
        every = float(os.environ.get("POOLSIM_CAPTURE_EVERY", "0"))
        if every > 0:
            threading.Thread(target=self._write_every, args=(every,), daemon=True).start()

    def _begin(self):
        self._write_facts("running")

    def _watch_children(self):
        """A forked child of multiprocessing leaves without atexit."""
        util = sys.modules.get("multiprocessing.util")
        process = sys.modules.get("multiprocessing.process")
        if util and process and process.parent_process() is not None:
            util.Finalize(None, self.write, args=("exit",), exitpriority=0)

    def _watch_signals(self):
        import signal
        import threading

        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGTERM)

        def on_term(number, frame):
            self.write("SIGTERM")
            if callable(before):
                before(number, frame)
            elif before != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        signal.signal(signal.SIGTERM, on_term)
        asked = signal.getsignal(signal.SIGUSR1)

        def on_usr1(number, frame):
            self.write("SIGUSR1")
            if callable(asked):
                asked(number, frame)

        signal.signal(signal.SIGUSR1, on_usr1)

    def _watch_refusals(self):
        import time

        def on_refusal(*_):
            # A program may be refused a hundred times in a row (cuDNN tries algorithms): now and then is enough.
            if time.monotonic() - self.last_oom > 10:
                self.write("out of memory")
                self.last_oom = time.monotonic()

        self.torch._C._cuda_attach_out_of_memory_observer(on_refusal)

    def _mark_steps(self):
        """Requests carry the number of the optimizer's step, where this torch can attach words to them."""
        mark = getattr(self.torch.cuda.memory, "_set_memory_metadata", None)
        if mark is None:
            return
        from torch.optim.optimizer import register_optimizer_step_post_hook

        mark("step 0")

        def after_step(*_):
            self.steps += 1
            mark(f"step {self.steps}")

        register_optimizer_step_post_hook(after_step)

    def _write_every(self, seconds):
        import time

        while self.pid == os.getpid():
            time.sleep(seconds)
            self.write("time")

    def write(self, why):
        """Replaces this process's snapshot by one of this moment."""
        if self.pid != os.getpid() or self.busy:
            return
        with self.lock:
            self.busy = True
            try:
                self._write_snapshot()
                self._write_facts(why)
            except Exception as error:
                _say(f"no snapshot could be written to {_SPOOL}: {error}")
            finally:
                self.busy = False

    def _write_snapshot(self):
        import pickle

        snapshot = self.torch.cuda.memory._snapshot()
        path = os.path.join(_SPOOL, f"{self.pid}.pickle")
        with open(path + ".part", "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        os.replace(path + ".part", path)

    def _write_facts(self, why):
        import json
        import time

        cuda = self.torch.cuda
        device = cuda.get_device_properties(cuda.current_device())
        facts = {
            "written_at": why,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": list(getattr(sys, "orig_argv", sys.argv)),
            "pid": self.pid,
            "rank": os.environ.get("RANK"),
            "world_size": os.environ.get("WORLD_SIZE"),
            "torch": self.torch.__version__,
            "cuda": self.torch.version.cuda,
            "device": device.name,
            "total_memory": device.total_memory,
            "memory_fraction": self.fraction,
            "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", os.environ.get("PYTORCH_ALLOC_CONF", "")),
            "steps": self.steps,
            "memory_stats": dict(cuda.memory_stats()) if why != "running" else {},
        }
        path = os.path.join(_SPOOL, f"{self.pid}.json")
        with open(path + ".part", "w") as file:
            json.dump(facts, file, indent=1)
        os.replace(path + ".part", path)


def _watch(torch):
    """Torch was imported: be called when CUDA starts, and learn of the limit that snapshots do not hold."""
    recorder = _Recorder(torch)
    set_fraction = torch.cuda.memory.set_per_process_memory_fraction

    def set_per_process_memory_fraction(fraction, device=None):
        set_fraction(fraction, device)
        recorder.fraction = fraction

    set_per_process_memory_fraction.__doc__ = set_fraction.__doc__
    torch.cuda.memory.set_per_process_memory_fraction = set_per_process_memory_fraction
    torch.cuda.set_per_process_memory_fraction = set_per_process_memory_fraction
    torch.cuda._lazy_call(recorder.start)


class _Finder:
    """Lets the import of torch go its way, and looks at it when it is done. Programs also ask for a spec without importing."""

    def __init__(self):
        self.asking = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        run = getattr(getattr(spec, "loader", None), "exec_module", None)
        if run is None:
            return spec

        def exec_module(module):
            run(module)
            try:
                _watch(module)
            except Exception as error:
                _say(f"this torch cannot be watched: {error!r}")

        spec.loader.exec_module = exec_module
        return spec


def _shadowed():
    """Runs the sitecustomize that this one stands before."""
    path = [p for p in sys.path if os.path.abspath(p or os.curdir) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if _SPOOL:
    try:
        with open(os.path.join(_SPOOL, "seen"), "a"):
            pass
        sys.meta_path.insert(0, _Finder())
    except Exception as error:
        _say(f"the spool {_SPOOL} cannot be written: {error}")
_shadowed()
