"""Notebook kernels as forks of one process that has already loaded what they all need.

A kernel takes two seconds of a core to start: it imports numpy, pandas, matplotlib, numba and our own code. When many
notebooks run, a server beside each worker does this once. No notebook sees another's state: each has its own fork.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerProcess
from tempfile import NamedTemporaryFile

from jupyter_client import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

_LOADED = [
    "ppbook.build.kernel_server", "ipykernel.kernelapp", "ipykernel.zmqshell", "matplotlib.pyplot", "pandas",
    "ppmodel.studies.analysis", "ppbook.check", "ppbook.claims", "ppbook.build.forked", "ppbook.parameters.cell",
    "ppbook.pages.pictures", "ppbook.pages.report", "ppmodel.loops", "ppmodel.plot",
]  # fmt: skip
"""What the server imports; none of it may start a thread, or ask for the shell that only a kernel has."""


def load_nothing():
    """Leave the imports to the kernel: where only one is started, it may need few of them."""
    del _LOADED[1:]


_PARENT_DEATH_SIGNAL = 1  # of prctl


def end_with_parent():
    """Have this process killed when its parent dies, where the system is Linux: a killed run leaves none behind."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


class ForkedKernels(AsyncKernelManager):
    """Starts kernels as forks; otherwise the same as papermill's default."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.provisioner = _Provisioner(parent=self, kernel_spec=self.kernel_spec)


class _Provisioner(LocalProvisioner):
    """Gets a kernel's command line and has a server fork that kernel."""

    async def launch_kernel(self, cmd, cwd=None, env=None, **_):
        get_context("forkserver").set_forkserver_preload(_LOADED)
        self.process = _Process(target=_kernel, args=(cmd[cmd.index("ipykernel_launcher") + 1 :], cwd, env))
        self.process.start()
        self.pid = self.pgid = self.process.pid
        return self.connection_info


class _Process(ForkServerProcess):
    """A forked kernel with what jupyter expects of a `subprocess.Popen`, besides what all processes have."""

    stdin = stdout = stderr = None

    def poll(self):
        return self.exitcode

    def wait(self):
        self.join()
        return self.exitcode

    def send_signal(self, number):
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _kernel(arguments, cwd, env):
    """Become a kernel, in its own session, so that a signal to its group reaches no other process."""
    from ipykernel.kernelapp import IPKernelApp

    end_with_parent()
    os.close(forkserver._forkserver._forkserver_alive_fd)  # if this stays open, the server outlives a killed worker
    os.setsid()
    os.environ.update(env or {})
    os.chdir(cwd or ".")
    kernel = IPKernelApp.instance(capture_fd_output=False)  # its thread may read what a cell wrote after the cell
    kernel.initialize(arguments)
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        kernel.shell.events.register("post_execute", _shown_by(stream, descriptor))
    kernel.start()


def _shown_by(stream, descriptor):
    """A function that shows in a cell's output what has been written straight to a descriptor since the last call."""
    with NamedTemporaryFile() as file:
        os.dup2(file.fileno(), descriptor)
        reader = os.open(file.name, os.O_RDONLY)  # with a place of its own in the file

    def show():
        if text := os.read(reader, os.fstat(reader).st_size):
            stream.write(text.decode(errors="replace"))

    return show
