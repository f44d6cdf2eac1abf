"""The warm process of a run. It has loaded the libraries of jobs, and forks one process for each job.

A job takes two seconds to start, most of them to load libraries. Forked from a process that has loaded them,
it starts almost at once. Each job is still a process of its own, with its own files, environment and end. It
is forked while no other thread runs, so it inherits no lock that is held. The warm process has loaded
libraries and done nothing else, so a job knows nothing of other jobs.

A caller cannot claim rights for itself. The warm process asks the system, and starts a job only for a caller
with exactly its own rights. It starts no more jobs once a file that it has loaded, or would load, has changed
since it began, because no job should run code that no longer exists.

Messages: the caller sends its circumstances, words, module path, folder and environment, and its three
standard streams. If the job answers no, the caller runs the command itself. If it answers yes, it sends a
handle through which the caller passes its signals on. When the job ends, the warm process sends its status.
If a caller ends, its job is killed. If the warm process ends, the system kills its jobs. The warm process
ends with its coordinator.
"""

import ast
import atexit
import ctypes
import gc
import importlib
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from leakbound.cli.launch.handover import LENGTH, NO, STATUS, WARM, YES, circumstances, peer_of

_THREADS = ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")
_BEGIN = (
    "import sys; del sys.path[0]; from leakbound.cli.launch.warm import serve; serve(*map(int, sys.argv[1:]))"
)
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_PR_SET_NAME = 15
_WAITING = 128  # callers at a time
_PACKAGE = str(Path(__file__).parents[2])
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_MODULES = "modules"  # file next to the socket: names of what is loaded
_LATER = {
    "torch": ("torch._dynamo", "torch.func"),  # the former is loaded by the first step of any optimizer
    "pandas": ("pyarrow.dataset", "pyarrow.parquet"),
    "leakbound.storage": ("safetensors.numpy",),
    "leakbound.attacks": ("sklearn.metrics", "scipy.stats"),
    "leakbound.channels.covariance": ("sklearn.covariance",),
    "leakbound.figures": ("matplotlib.figure", "matplotlib.style", "matplotlib.ticker"),
}
"""Module to other modules that its users load too, but later."""


def available() -> bool:
    """Return True if this system has everything that a warm process needs, and the environment does not forbid one."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and os.environ.get(WARM) != "0"


def start(modules: Iterable[str]) -> None:
    """Start the warm process of this process, the coordinator, and name it to all jobs that start from now on.

    Args:
        modules: Modules that it loads if they exist.
    """
    folder = Path(tempfile.mkdtemp(prefix="leakbound-"))  # nobody else may enter it
    place = folder / "jobs"
    # Snakemake gives each job as many threads as it asks for; most ask for one.
    threads = {f"{name}_NUM_THREADS": "1" for name in _THREADS} | {"VECLIB_MAXIMUM_THREADS": "1"}
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(place))
        except OSError as error:  # the name of the folder for temporary files may be too long for a socket
            sys.stderr.write(
                f"leakbound: no warm process, so each job loads its own libraries: {place}: {error}\n"
            )
            folder.rmdir()
            return
        listener.listen(_WAITING)
        (folder / _MODULES).write_text(" ".join(sorted(modules)), encoding="utf-8")
        words = [sys.executable, "-c", _BEGIN, str(os.getpid()), str(listener.fileno())]
        process = subprocess.Popen(
            words,
            env=os.environ | threads,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    os.environ[WARM] = str(place)
    atexit.register(_stop, process, folder)


def _stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End the warm process and wait for its end, so that its time counts as the coordinator's."""
    process.terminate()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def serve(coordinator: int, number: int) -> None:
    """Be the warm process until the coordinator ends.

    Args:
        coordinator: Process number of the coordinator.
        number: Number of the socket on which jobs connect.
    """
    here = circumstances()
    sources = _sources()
    listener = socket.socket(fileno=number)
    folder = Path(listener.getsockname()).parent
    signal.signal(signal.SIGTERM, partial(_leave, folder))
    _end_after(coordinator, signal.SIGTERM)
    os.environ["JE_ARROW_MALLOC_CONF"] = (
        "background_thread:false"  # Arrow's second allocator, which jobs do not use
    )
    _load(
        (
            "leakbound.cli.command_line",
            "leakbound.cli.step_command",
            *(folder / _MODULES).read_text(encoding="utf-8").split(),
        )
    )
    if len(threads := list(Path("/proc/self/task").iterdir())) > 1:
        names = ", ".join(sorted((thread / "comm").read_text().strip() for thread in threads))
        sys.stderr.write(
            "leakbound: no warm process, so each job loads its own libraries: "
            f"a library has started a thread (of {names})\n"
        )
        return
    if not sources.items() <= (loaded := _sources()).items():
        return  # edited meanwhile
    gc.collect()
    gc.freeze()  # what is never freed is not written to either, so that processes share its memory
    _Warm(listener, here, loaded).answer_all()


def _sources() -> dict[str, tuple[int, ...]]:
    """Return place, size and times of change of the package's files and of loaded modules that are not installed."""
    inside = [os.path.join(folder, file) for folder, _, files in os.walk(_PACKAGE) for file in files]
    loaded = [str(getattr(module, "__dict__", {}).get("__file__")) for module in list(sys.modules.values())]
    states: dict[str, tuple[int, ...]] = {}
    for file in (*inside, *loaded):
        if not file.endswith(".py") or (file.startswith(_INSTALLED) and not file.startswith(_PACKAGE)):
            continue
        with suppress(OSError):
            status = os.stat(file)
            states[file] = (
                status.st_dev,
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
            )
    return states


def _confinement(process: int) -> list[str]:
    """List the limits of a process: capabilities, filters of calls, name spaces, profile, group and root.

    Raises:
        OSError: If it has ended, is in another name space, or has rights that this process lacks.
    """
    home = f"/proc/{process}"
    with (
        open(f"{home}/status", encoding="utf-8") as status,
        open(f"{home}/cgroup", encoding="utf-8") as group,
    ):
        lines = [*group, *(line for line in status if line.startswith(("Cap", "NoNewPrivs", "Seccomp")))]
    with suppress(OSError), open(f"{home}/attr/current", encoding="utf-8") as profile:  # not on all systems
        lines += profile
    spaces = (os.readlink(f"{home}/ns/{name}") for name in sorted(os.listdir(f"{home}/ns")))
    return [*lines, *spaces, str(os.stat(f"{home}/root")[:3])]


def _load(modules: Iterable[str]) -> None:
    """Load modules, and the modules that they load only on use. A job that misses one reports it."""
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)
    for name in [name for package, later in _LATER.items() if package in sys.modules for name in later]:
        with suppress(ImportError):
            importlib.import_module(name)
    if "leakbound.tracking" in sys.modules:
        from leakbound.tracking import store

        with suppress(ImportError):
            store.load_mlflow()
    logging.root.handlers.clear()  # a library sets up its own, which would keep jobs from setting up theirs
    logging.root.setLevel(logging.WARNING)


def _leave(folder: Path, *_: object) -> NoReturn:
    """End the warm process and thereby its jobs. Remove the folder of its socket in place of the coordinator."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _end_after(parent: int, number: int) -> None:
    """Let the system signal this process when its parent ends. End at once if the parent has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


class _Warm:
    """The warm process.

    Args:
        listener: Socket on which callers connect.
        here: Circumstances under which it was started.
        sources: Files that it has loaded, as they were.
    """

    def __init__(
        self, listener: socket.socket, here: dict[str, object], sources: dict[str, tuple[int, ...]]
    ) -> None:
        self._listener = listener
        self._here = here
        self._sources = sources
        self._jobs: dict[int, tuple[int, socket.socket]] = {}  # by a handle of the process
        self._callers: dict[int, int] = {}  # number of the connection to that handle
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def answer_all(self) -> None:
        """Start a process for the job of each caller. The function returns in none of these processes."""
        while True:
            for number, _ in self._poll.poll():
                if number == self._listener.fileno():
                    self._answer()
                elif number in self._jobs:
                    self._report(number)
                elif number in self._callers:  # gone, which is all that is looked for
                    self._poll.unregister(number)
                    signal.pidfd_send_signal(self._callers.pop(number), signal.SIGKILL)

    def _answer(self) -> None:
        """Fork a process for a caller. Only the new process reads the caller's messages, so nobody has to wait."""
        link, _ = self._listener.accept()
        if (caller := peer_of(link)) is None:
            link.close()
            return
        parent = os.getpid()
        process = os.fork()
        if process == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._forget()
            _work(link, self._here, parent, partial(self._may_serve, caller))
        handle = os.pidfd_open(process)
        self._jobs[handle] = process, link
        self._callers[link.fileno()] = handle
        self._poll.register(handle, select.POLLIN)
        self._poll.register(link, 0)

    def _may_serve(self, caller: int) -> bool:
        """Return True if the caller itself would run the same code with the same rights."""
        # No process that is forked could use a GPU that a library opened while it was loaded.
        torch = sys.modules.get("torch")
        opened = torch is not None and torch.cuda._is_in_bad_fork()
        return (
            _confinement(caller) == _confinement(os.getpid()) and _sources() == self._sources and not opened
        )

    def _report(self, handle: int) -> None:
        """Send a caller the status of its job."""
        process, link = self._jobs.pop(handle)
        _, status = os.waitpid(process, 0)
        self._poll.unregister(handle)
        if self._callers.pop(link.fileno(), None) is not None:
            self._poll.unregister(link)
        with suppress(OSError), link:
            link.sendall(STATUS.pack(status))
        os.close(handle)

    def _forget(self) -> None:
        """Release, in the process of a job, everything that belongs to others."""
        self._listener.close()
        for handle, (_, link) in self._jobs.items():
            os.close(handle)
            link.close()


def _work(
    link: socket.socket, here: dict[str, object], parent: int, may_serve: Callable[[], bool]
) -> NoReturn:
    """Be the process of a job: run its command as if it had been started directly."""
    began = time.monotonic()
    _end_after(parent, signal.SIGKILL)
    try:
        (there, words, path, folder, environment), streams = _request(link)
        if there != here or not may_serve():
            link.sendall(NO)
            os._exit(0)
        os.chdir(folder)
        socket.send_fds(link, [YES], [os.pidfd_open(os.getpid())])
    except (OSError, EOFError):  # the caller is gone, or its folder
        os._exit(1)
    link.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    sys.path[:] = path
    tempfile.tempdir = None
    # Python reseeds its own generator. All other draws of the package come from seeds or from the system.
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    after = words.index("step") + 1 if "step" in words else len(words)
    # The name in lists of processes.
    ctypes.CDLL(None).prctl(_PR_SET_NAME, " ".join(["leakbound", *words[after:][:1]]).encode())
    _end(_status_of(began))


def _request(link: socket.socket) -> tuple[tuple[Any, ...], list[int]]:
    """Read everything that a caller sends: plain values, and its standard streams."""
    head, streams, *_ = socket.recv_fds(link, LENGTH.size, 3)
    with link.makefile("rb") as rest:
        (length,) = LENGTH.unpack(head)
        text = rest.read(length)
    if len(text) < length or len(streams) != 3:
        raise EOFError
    return ast.literal_eval(text.decode("ascii")), streams


def _status_of(began: float) -> int:
    """Run the command, and return the status with which Python would end."""
    from leakbound.cli.command_line import run

    try:
        run(began)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        return -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """End this process as Python would, but without unloading all modules, which takes as long as to load them.

    ``multiprocessing`` ends the processes that it forks in the same way.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = status or 120
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
