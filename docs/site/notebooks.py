"""A notebook as a page: its text, its code, and what the code printed."""

from typing import Any


def to_markdown(notebook: dict[str, Any], file: str) -> str:
    """`file`: the notebook's name, for the link that gets it."""
    parts = [part for cell in notebook["cells"] for part in _cell(cell)]
    title, rest = parts[0].partition("\n")[::2]
    return "\n\n".join([title, f'[The notebook itself]({file}){{ download="{file}" }}', rest.strip(), *parts[1:]])


def _cell(cell: dict[str, Any]) -> list[str]:
    source = _text(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [_fence(source, "python"), *(_output(output) for output in cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _fence(_text(output["text"]), "text")
    if output["output_type"] == "error":
        raise ValueError(f"a notebook has an error in it: {output['ename']}: {output['evalue']}")
    data = output["data"]
    if "image/png" in data:
        return f"![](data:image/png;base64,{''.join(_text(data['image/png']).split())})"
    return _text(data["text/markdown"]) if "text/markdown" in data else _fence(_text(data["text/plain"]), "text")


def _fence(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _text(text: str | list[str]) -> str:
    """Notebooks have text whole or by lines."""
    return text if isinstance(text, str) else "".join(text)
