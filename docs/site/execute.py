"""Run the notebooks and keep what they print: `make notebooks`. One that fails stays as it was.

A kernel's process gives an editor much that a page does not need: times of execution, identifiers and the version of
Python are left out, so that a run that prints the same changes nothing.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        print(f"running {path.name}", flush=True)
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=1800, startup_timeout=300, kernel_name="python3").execute()
        _tidy(notebook)
        beside = path.with_suffix(".partial")
        nbformat.write(notebook, beside)
        beside.replace(path)


def _tidy(notebook: nbformat.NotebookNode) -> None:
    notebook.metadata.language_info = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = _joined([one for one in cell.outputs if one.get("name") != "stderr"])  # no progress


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """What was printed in pieces, as one."""
    joined: list[nbformat.NotebookNode] = []
    for one in outputs:
        if joined and one.output_type == joined[-1].output_type == "stream":
            joined[-1].text += one.text
        else:
            joined.append(one)
    return joined


if __name__ == "__main__":
    main()
