import pytest

from tests.models import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Options that name a tiny model with two layers and room for 256 tokens, and a text of its words."""
    shape = {"head_dim": 32, "max_position_embeddings": 256, "num_hidden_layers": 2}
    folder, text = tiny.save(tmp_path_factory.mktemp("paper") / "model", **shape)
    text.write_text("\n".join([text.read_text()] * 3))
    return {"model": str(folder), "text": str(text)}
