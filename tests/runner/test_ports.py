"""The ports of kernels."""

from __future__ import annotations

import socket
import subprocess
import sys

import nbformat
from jupyter_client.manager import KernelManager

from resumable_nb.runner import run_notebook
from resumable_nb.runner.ports import give_ports

SHOW = """
from jupyter_client.manager import KernelManager
from resumable_nb.runner.ports import give_ports
for _ in range(3):
    manager = KernelManager()
    give_ports(manager)
    print(*manager.ports)
"""


def test_no_two_kernels_are_given_the_same_port() -> None:
    """Neither by one process nor by two, though none listens yet; and none that the system gives to others."""
    running = [subprocess.Popen([sys.executable, "-c", SHOW], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    given = [int(port) for process in running for port in process.communicate()[0].split()]

    assert len(given) == len(set(given)) == 2 * 3 * 5
    assert all(10_000 <= port < 32_768 for port in given)


def test_a_port_on_which_somebody_listens_is_passed_over() -> None:
    """Whoever was there first keeps it."""
    given: set[int] = set()
    first = KernelManager()
    give_ports(first)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((first.ip, first.shell_port))
        other.listen()
        for _ in range(10):  # once around the places of this process
            manager = KernelManager()
            give_ports(manager)
            given |= set(manager.ports)

    assert first.shell_port not in given
    assert given & set(first.ports)


def test_the_kernel_of_a_run_listens_there(tmp_path) -> None:
    """It uses the ports that it was given."""
    show = "import json, ipykernel\nprint(json.load(open(ipykernel.get_connection_file()))['shell_port'])"
    path = tmp_path / "nb.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(show)]), path)
    run = run_notebook(path, say=lambda _: None)
    (output,) = nbformat.read(run.output, as_version=4).cells[0].outputs

    assert 10_000 <= int(output.text) < 32_768
