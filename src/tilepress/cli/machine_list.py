"""The machines that come with the package, with the rates that a Roof-Surface is made of."""

from typing import TYPE_CHECKING

from .output import Recorder, print_table

if TYPE_CHECKING:
    from ..hardware import Machine


def show_machines(json: bool) -> None:
    from ..hardware import machine_names, read_machine

    machines = [read_machine(name) for name in machine_names()]
    if json:
        _record(machines)
        return
    columns = ["name", "machine", "vector units", "cores", "GHz", "GB/s", "vector Gop/s", "tiles, G/s", "rows"]
    print_table(
        "Machines: a vector operation has so many bits, a tile 512 weights", columns, map(_row, machines), words=3
    )


def _row(machine: "Machine") -> list[str]:
    vector, matrix = machine.vector, machine.matrix
    known = "cores" in machine.model_fields_set
    return [
        machine.name,
        machine.title,
        f"{vector.units:g} × {vector.bits} bits" if vector else "",
        str(machine.cores) if known else "",
        f"{machine.frequency / 1e9:.2f}" if known else "",
        f"{machine.memory.bandwidth / 1e9:.0f}",
        f"{machine.vector_rate / 1e9:.0f}" if vector else "",
        f"{machine.matrix_rate / 1e9:.2f}" if matrix else "",
        str(matrix.rows) if matrix else "",
    ]


def _record(machines: "list[Machine]") -> None:
    recorder = Recorder("model")
    for one in machines:
        recorder.add("machine_title", one.title, target=one.name)
        recorder.add("bandwidth", one.memory.bandwidth / 1e9, "GB/s", target=one.name)
        if one.vector:
            recorder.add("vector_rate", one.vector_rate / 1e9, "Goperation/s", target=one.name, bits=one.vector.bits)
        if one.matrix:
            recorder.add("matrix_rate", one.matrix_rate / 1e9, "Goperation/s", target=one.name, rows=one.matrix.rows)
    recorder.print_json()
