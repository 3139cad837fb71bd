"""The ports of kernels."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys

import nbformat
import pytest
from jupyter_client.manager import KernelManager

from resumable_nb.runner import run_notebook
from resumable_nb.runner.ports import give_ports

SHOW = """
import sys
from jupyter_client.manager import KernelManager
from resumable_nb.runner import ports
if len(sys.argv) > 1:
    ports._places = lambda: iter(range(int(sys.argv[1]), 32_768))
managers = [KernelManager() for _ in range(3)]
for manager in managers:
    ports.give_ports(manager)
print(*(port for manager in managers for port in manager.ports), flush=True)
input()
"""


def given_to_two(*begin: str) -> list[int]:
    """The ports of three kernels in each of two processes, none of which is started."""
    command = [sys.executable, "-c", SHOW, *begin]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    given = [int(port) for process in running if process.stdout for port in process.stdout.readline().split()]
    for process in running:
        process.communicate("\n")
    return given


def test_no_two_kernels_are_given_the_same_port() -> None:
    """Neither by one process nor by two, though none listens yet; and none that the system gives to others."""
    given = given_to_two()

    assert len(given) == len(set(given)) == 2 * 3 * 5
    assert all(10_000 <= port < 32_768 for port in given)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port cannot be kept for a kernel")
def test_two_processes_that_look_at_the_same_ports_get_different_ones() -> None:
    """A port is kept for its kernel from when it is chosen, not only from when the kernel listens."""
    given = given_to_two("20000")

    assert len(given) == len(set(given)) == 2 * 3 * 5


def test_a_port_on_which_somebody_listens_is_passed_over() -> None:
    """Whoever was there first keeps it; when the manager of a kernel is gone, its ports are free again."""
    given: set[int] = set()
    first = KernelManager()
    give_ports(first)
    ports, ip = first.ports, first.ip
    del first
    gc.collect()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((ip, ports[0]))
        other.listen()
        for _ in range(10):  # once around the places of this process
            manager = KernelManager()
            give_ports(manager)
            given |= set(manager.ports)

    assert ports[0] not in given
    assert given & set(ports)


def test_the_kernel_of_a_run_listens_there(tmp_path) -> None:
    """It uses the ports that it was given."""
    show = "import json, ipykernel\nprint(json.load(open(ipykernel.get_connection_file()))['shell_port'])"
    path = tmp_path / "nb.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(show)]), path)
    run = run_notebook(path, say=lambda _: None)
    (output,) = nbformat.read(run.output, as_version=4).cells[0].outputs

    assert 10_000 <= int(output.text) < 32_768
