"""Records PyTorch's memory history in every Python process of a command that `poolsim capture` started.

Python imports this as `sitecustomize` at its start. It does nothing but watch for `torch`; when CUDA starts in a process, it
switches the history on, and it writes a snapshot whenever the process may end. Whatever goes wrong in here is said in one line and
leaves the job alone.
"""

import contextlib
import functools
import importlib.machinery
import importlib.util
import os
import sys
import time

_CALLS_KEPT = 20_000
_RANGES_KEPT = 64
_RANGES_SHOWN = 4
_HERE = os.path.dirname(os.path.abspath(__file__))
_SPOOL = os.environ.get("POOLSIM_CAPTURE_SPOOL", "")


_said = set()


def _say(what):
    if what in _said:
        return
    _said.add(what)
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
        self.writer = None
        self.fractions = {}
        self.calls = []
        self.calls_left_out = 0
        self.steps = 0
        self.ranges = []
        self.mark = None
        self.last_oom = None

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
        parts = self._begin, self._watch_children, self._watch_signals, self._watch_refusals, self._watch_marks, self._watch_steps
        for part in parts:
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
        def on_refusal(*_):
            # A program may be refused a hundred times in a row (cuDNN tries algorithms): now and then is enough.
            if self.last_oom is None or time.monotonic() - self.last_oom > 10:
                self.write("out of memory")
                self.last_oom = time.monotonic()

        self.torch._C._cuda_attach_out_of_memory_observer(on_refusal)

    def _watch_marks(self):
        """Requests carry the step and the NVTX ranges around them, where this torch can attach words to them."""
        self.mark = getattr(self.torch.cuda.memory, "_set_memory_metadata", None)
        self._mark()

    def _mark(self):
        if self.mark is not None:
            self.mark(": ".join([f"step {self.steps}"] + self.ranges[-_RANGES_SHOWN:]))

    def range_begins(self, name):
        if not self._traced():
            self.ranges = self.ranges[-_RANGES_KEPT:] + [str(name)[:80]]
            self._mark()

    def range_ends(self):
        if self.ranges and not self._traced():
            self.ranges.pop()
            self._mark()

    def _traced(self):
        """torch.compile calls functions once more to see what they do; no range begins or ends then."""
        guards = sys.modules.get("torch._guards")
        return guards is not None and guards.TracingContext.try_get() is not None

    def _watch_steps(self):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        every = int(os.environ.get("POOLSIM_CAPTURE_EVERY_STEPS", "0"))
        compiler = self.torch.compiler

        def after_step(*_):
            # A compiled step is traced with its hooks: what follows would break its graph and have it compiled at each step.
            if compiler.is_compiling():
                return
            self.steps += 1
            self._mark()
            if every > 0 and self.steps % every == 0:
                self.write(f"step {self.steps}")

        register_optimizer_step_post_hook(after_step)

    def called(self, at, name, **what):
        """Keeps a call that the history does not hold; `at` is on the history's clock."""
        if len(self.calls) < _CALLS_KEPT:
            self.calls.append({"time_us": at, "call": name, **what})
        else:
            self.calls_left_out += 1

    def _write_every(self, seconds):
        while self.pid == os.getpid():
            time.sleep(seconds)
            self.write("time")

    def write(self, why):
        """Replaces this process's snapshot by one of this moment."""
        import threading

        # A signal may come while its own thread writes; another thread's writing is waited for.
        if self.pid != os.getpid() or self.writer == threading.get_ident():
            return
        with self.lock:
            self.writer = threading.get_ident()
            try:
                self._write_snapshot()
                self._write_facts(why)
            except Exception as error:
                _say(f"no snapshot could be written to {_SPOOL}: {error}")
            finally:
                self.writer = None

    def _write_snapshot(self):
        import pickle

        snapshot = self.torch.cuda.memory._snapshot()
        path = os.path.join(_SPOOL, f"{self.pid}.pickle")
        with _replacing(path) as file:
            pickle.dump(snapshot, file, protocol=4)

    def _write_facts(self, why):
        import json

        cuda = self.torch.cuda
        current = cuda.current_device()
        device = cuda.get_device_properties(current)
        facts = {
            "written_at": why,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": list(getattr(sys, "orig_argv", sys.argv)),
            "pid": self.pid,
            "rank": os.environ.get("RANK"),
            "world_size": os.environ.get("WORLD_SIZE"),
            "torch": self.torch.__version__,
            "cuda": self.torch.version.cuda,
            "driver": _driver(),
            "device": device.name,
            "total_memory": device.total_memory,
            "memory_fraction": self.fractions.get(current),
            "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", os.environ.get("PYTORCH_ALLOC_CONF", "")),
            "steps": self.steps,
            "calls": self.calls,
            "calls_left_out": self.calls_left_out,
            "memory_stats": dict(cuda.memory_stats()) if why != "running" else {},
        }
        path = os.path.join(_SPOOL, f"{self.pid}.json")
        with _replacing(path) as file:
            file.write(json.dumps(facts, indent=1).encode())


@contextlib.contextmanager
def _replacing(path):
    """A file that takes its place when it is complete; on a full disk it gives back what it took."""
    try:
        with open(path + ".part", "wb") as file:
            yield file
        os.replace(path + ".part", path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path + ".part")
        raise


def _driver():
    """The driver's version, where Linux tells it."""
    try:
        with open("/sys/module/nvidia/version") as file:
            return file.read().strip()
    except OSError:
        return None


def _wrap(owners, name, note):
    """Has `note` told of each call of a function that returned, with the moment at which it was called."""
    function = getattr(owners[0], name)

    @functools.wraps(function)
    def called(*args, **kwargs):
        at = time.time_ns() // 1000
        result = function(*args, **kwargs)
        try:
            note(at, *args, **kwargs)
        except Exception as error:
            _say(f"a call of {name} is not recorded: {error!r}")
        return result

    for owner in owners:
        setattr(owner, name, called)


def _watch(torch):
    """Torch was imported: be called when CUDA starts, and learn of what histories do not hold."""
    recorder = _Recorder(torch)
    cuda = torch.cuda

    def fraction_set(at, fraction, device=None):
        index = cuda._utils._get_device_index(device, optional=True)
        recorder.fractions[index] = fraction
        recorder.called(at, "set_per_process_memory_fraction", fraction=fraction, device=index)

    def stream_recorded(at, tensor, stream):
        # Tensors of other classes (fake ones, those of compilers) may have no memory.
        plain = type(tensor) is torch.Tensor
        addr = tensor.untyped_storage().data_ptr() if plain else None
        recorder.called(at, "record_stream", addr=addr, stream=getattr(stream, "cuda_stream", None))

    def told(name):
        return lambda at, *args, **kwargs: recorder.called(at, name)

    both = cuda.memory, cuda
    watched = [(both, "set_per_process_memory_fraction", fraction_set), ([torch.Tensor], "record_stream", stream_recorded)]
    watched += [(both, name, told(name)) for name in ("empty_cache", "reset_peak_memory_stats")]
    watched += [([cuda.nvtx], "range_push", lambda at, msg: recorder.range_begins(msg))]
    watched += [([cuda.nvtx], "range_pop", lambda at: recorder.range_ends())]
    for owners, name, note in watched:
        try:
            _wrap(owners, name, note)
        except Exception as error:
            _say(f"calls of {name} are not recorded: {error!r}")
    cuda._lazy_call(recorder.start)


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
