"""Handover of a command to the warm process of its run, which has already loaded the libraries of jobs.

Every start of the command line comes through this module, so it imports next to nothing.
``leakbound.cli.launch.warm`` is the other end, and describes the messages between the two.
"""

import os
import resource
import signal
import socket
import struct
import sys
from types import FrameType

WARM = "LEAKBOUND_WARM"  # socket of the run's warm process; 0 if there shall be none
YES = b"y"
NO = b"n"
LENGTH = struct.Struct("=Q")  # length of the request that follows
STATUS = struct.Struct("=i")  # status of the process that ran the command, as os.wait returns it
OWN = frozenset(("_", "SHLVL", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMPDIR", "TEMP", "PS1", "PS2", WARM))
"""Variables that a job may have to itself: nothing reads them while it is loaded.

An activated environment exports PS1, and the shell of a job, which is not interactive, removes it.
"""
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")
_PEER = struct.Struct("3i")  # process, user, group


def circumstances() -> dict[str, object]:
    """Return everything that a process has from its start on, or that libraries may have read while they were loaded.

    A process runs a command of another one only if these are equal. Otherwise the result could differ.
    """
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "python": [sys.executable, sys.version, str(sys.flags), *sys.warnoptions],
        "code": __file__,
        "environment": sorted(pair for pair in os.environ.items() if pair[0] not in OWN),
        "user": [os.getresuid(), os.getresgid(), sorted(os.getgroups())],
        "umask": mask,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cores": sorted(os.sched_getaffinity(0)),
        "limits": [
            (name, resource.getrlimit(kind))
            for name, kind in sorted(vars(resource).items())
            if "RLIMIT_" in name
        ],
    }


def peer_of(link: socket.socket) -> int | None:
    """Return the number of the process at the other end, if it belongs to this user."""
    process, user, _ = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(process) if user == os.geteuid() else None


def hand_over() -> None:
    """Let the warm process that the environment names run this command, and end with its status.

    The function returns if there is no warm process, or if it would run the command under other
    circumstances.
    """
    place = os.environ.get(WARM, "")
    if not place.startswith("/"):
        return
    with socket.socket(socket.AF_UNIX) as link:
        try:
            process = _accepted(link, place)
        except OSError:  # it has ended, or one of the standard streams is closed
            return
        if process is not None:
            _end_like(link, process)


def _accepted(link: socket.socket, place: str) -> int | None:
    """Request the command, and return a handle of the process that runs it. None if the request is refused."""
    link.connect(place)
    if peer_of(link) is None:
        return None
    # Plain values as text: modules that write other forms take longer to load than all else here.
    message = ascii((circumstances(), sys.argv, sys.path, os.getcwd(), dict(os.environ))).encode()
    socket.send_fds(link, [LENGTH.pack(len(message))], [0, 1, 2])
    link.sendall(message)
    answer, handles, *_ = socket.recv_fds(link, 1, 1)
    return handles[0] if answer == YES and handles else None


def _end_like(link: socket.socket, process: int) -> None:
    """Pass signals on to the process that runs the command, and end with its status."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        try:
            signal.pidfd_send_signal(process, signal.SIGSTOP if number == signal.SIGTSTP else number)
        except ProcessLookupError:
            return
        if number == signal.SIGTSTP:  # stopped from a terminal: both stop
            os.kill(os.getpid(), signal.SIGSTOP)

    for name in (*_PASSED_ON, "SIGTSTP"):
        if signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:
            signal.signal(getattr(signal, name), pass_on)
    try:
        answer = link.recv(STATUS.size, socket.MSG_WAITALL)
    except OSError:
        answer = b""
    if len(answer) < STATUS.size:
        os.write(2, b"leakbound: the warm process of this run has ended, and this job with it\n")
        os._exit(1)
    (status,) = STATUS.unpack(answer)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)
