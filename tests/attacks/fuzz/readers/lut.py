"""Files of look-up tables: `tilepress.formats.parse` of `lutN:FILE`."""

from pathlib import Path

from tests.attacks.fuzz.text_file import TextReader

from tilepress.formats import FormatError, parse

NAME = "table.txt"
SAMPLES = ("-1, -0.5, 0, 0.25, 0.5, 1\n", "# eight values\n0 1 2 3  # half\n-1e-3 1e3 .5 -7.\n", "1" * 20 + "\n")
WORDS = ("1e38", "1e39", "-1e39", "1e-46", "infinity", "+.5", "--1", "1,,2", "\r", "\x0b", "\x85", "\x1c", "\u0661")


class Reader(TextReader):
    refusals = (FormatError,)
    name, texts, words, byte_share = NAME, SAMPLES, WORDS, 0.3

    def read(self, folder: Path) -> None:
        format = parse(f"lut3:{folder / NAME}:g32")
        format.element.encode(0.3)
