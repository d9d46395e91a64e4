"""What a command recorded, to be asked for by metric and labels."""

from tilepress.records import from_json


class Figures:
    def __init__(self, printed):
        self.records = from_json(printed, "what was printed")

    def all(self, metric, **labels):
        """Values of the figures that have these labels, whatever others they have."""
        return [one.value for one in self._having(metric, labels)]

    def has(self, metric, **labels):
        return bool(self._having(metric, labels))

    def __call__(self, metric, **labels):
        """The value of the figure that has these labels, and fewer others than any other such figure."""
        ordered = sorted(self._having(metric, labels), key=lambda one: len(one.labels))
        assert ordered, f"no {metric} with {labels}"
        assert len(ordered) == 1 or len(ordered[0].labels) < len(ordered[1].labels), f"several {metric} with {labels}"
        return ordered[0].value

    def _having(self, metric, labels):
        return [one for one in self.records if one.metric == metric and labels.items() <= one.labels.items()]
