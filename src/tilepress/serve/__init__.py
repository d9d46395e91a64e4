"""An OpenAI-compatible server on the engine: `tilepress serve`. Needs the serve extra."""

from .._extras import need_serve

need_serve("tilepress.serve")
