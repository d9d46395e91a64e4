"""The card of a compressed folder: what the hub reads of it, and what was measured."""

import json
from datetime import date

import pytest
import yaml

from tests.models import tiny
from tests.models.gguf_files import write_gguf
from tilepress.models import compress_folder, load_model
from tilepress.models.card import model_card
from tilepress.models.checksums import check_sums, is_own_card
from tilepress.models.kept_records import (
    RECORDS,
    check_keeps_records,
    is_own_records,
    keep_records,
    read_records,
)
from tilepress.models.origin import front_matter, origin_of
from tilepress.models.registration import TilepressConfig
from tilepress.records import Record, from_json

SPREAD = {"statistic": "standard_error"}


@pytest.fixture
def small(llama_folder, tmp_path):
    compress_folder(str(llama_folder[0]), tmp_path / "small", {})
    return tmp_path / "small"


def record(value, folder, metric="perplexity", **labels):
    command = f"tilepress eval {folder} --data {folder.parent}/text.txt"
    return Record(metric, {"model": str(folder), "text": "wikitext2", **labels}, value, "", "measured", "Xeon", command)


def test_figures_are_kept_and_shown(small):
    assert keep_records(small, [record(12.5, small), record(0.25, small, **SPREAD)])
    card = (small / "README.md").read_text()
    assert f"| perplexity, text wikitext2 | 12.5 ± 0.25 |  | {date.today()} | 1 |" in card and "1. Xeon" in card
    assert is_own_card(small / "README.md") and is_own_records(small / RECORDS)
    kept = from_json((small / RECORDS).read_text(), RECORDS)
    assert [one.value for one in kept] == [12.5, 0.25] and str(small.parent) not in (small / RECORDS).read_text()
    assert kept[0].labels["model"] == "small" and kept[0].command == "tilepress eval small --data text.txt"
    assert RECORDS not in check_sums(small)
    load_model(str(small))


def test_a_figure_measured_again_takes_the_place_of_the_first(small):
    keep_records(small, [record(12.5, small), record(3, small, "decode", depth=8)])
    keep_records(small, [record(13.5, small)])
    assert sorted(one.value for one in read_records(small)) == [3, 13.5]
    card = (small / "README.md").read_text()
    assert (
        "12.5" not in card
        and card.count("## What was measured") == 1
        and "| decode, text wikitext2, depth 8 | 3" in card
    )
    assert yaml.safe_load(card.split("---")[1])["library_name"] == "transformers"


def test_figures_of_other_weights_count_as_nothing(small, llama_folder):
    keep_records(small, [record(12.5, small)])
    compress_folder(str(llama_folder[0]), small, {"weights": {"format": "int8:row"}})
    assert not (small / RECORDS).exists() and "12.5" not in (small / "README.md").read_text()
    keep_records(small, [record(11.5, small)])
    model = load_model(str(small)).model
    model.model.norm.weight.data += 1
    model.save_pretrained(small)
    assert read_records(small) == []


def test_an_edited_card_stays(small):
    (small / "README.md").write_text("mine")
    assert not keep_records(small, [record(12.5, small)])
    assert (small / "README.md").read_text() == "mine" and len(read_records(small)) == 1


def test_where_records_cannot_be_kept(small, llama_folder):
    with pytest.raises(ValueError, match=r"writes to a folder that `tilepress compress` wrote, and .*model is none"):
        check_keeps_records(str(llama_folder[0]))
    (small / RECORDS).write_text("[]x")
    with pytest.raises(ValueError, match=r"records.json is not as tilepress wrote it: move it away"):
        check_keeps_records(str(small))
    (small / RECORDS).unlink()
    (small / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match=r"has no checksums of its weights"):
        check_keeps_records(str(small))


def test_what_the_hub_reads(llama_folder, tmp_path):
    folder, _ = tiny.save(tmp_path / "model")
    (folder / "README.md").write_text("---\nlicense: other\nlicense_name: 'a: b'\nbase_model: x/y\n---\n# Hello\n")
    compress_folder(str(folder), tmp_path / "out", {})
    stated = front_matter(tmp_path / "out")
    assert stated == {
        "library_name": "transformers", "tags": ["tilepress", "cpu"], "license": "other", "license_name": "a: b",
        "pipeline_tag": "text-generation",
    }  # fmt: skip
    assert not is_own_card(folder / "README.md") and is_own_card(tmp_path / "out/README.md")
    load_model(str(tmp_path / "out")).model.save_pretrained(tmp_path / "again")
    assert front_matter(tmp_path / "again") == stated
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    card = (tmp_path / "out/README.md").read_text()
    assert "What it was made from has the license `a: b`." in card and "The base model" not in card
    assert config["origin"] == {"license": "other", "license_name": "a: b"} and config["calibration"] is None


@pytest.mark.parametrize(
    "license, sentence",
    [({"license": "mit"}, "its license is `mit`."), ({}, "it was not found under which license.")],
)
def test_the_card_names_the_base_model(small, license, sentence):
    stated = json.loads((small / "config.json").read_text())["quantization_config"]
    card = model_card(TilepressConfig(**stated | {"origin": {"base_model": "a/b", **license}}), "LlamaForCausalLM")
    assert f"The base model is [a/b](https://huggingface.co/a/b); {sentence}" in card
    front = yaml.safe_load(card.split("---")[1])
    assert front["base_model"] == "a/b" and front["base_model_relation"] == "quantized"


def test_origins(tmp_path):
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    assert origin_of("org/name", tmp_path) == {"base_model": "org/name", "license": "mit"}
    assert origin_of("smollm2-135m", tmp_path)["license"] == "apache-2.0"
    assert origin_of(str(tmp_path), tmp_path) == {"license": "mit"}
    (tmp_path / "README.md").write_text("---\nlicense: [a\n---\n")
    assert origin_of("org/name", tmp_path) == {"base_model": "org/name"}
    write_gguf(tmp_path / "m.gguf")
    assert origin_of(str(tmp_path / "m.gguf"), tmp_path) == {}


def test_the_calibration_text_is_noted(llama_folder, tmp_path, recipe):
    compress_folder(str(llama_folder[0]), tmp_path / "out", recipe)
    made = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]["calibration"]
    assert (made["text"], made["sequences"], made["length"], len(made["sha256"])) == ("text.txt", 4, 16, 64)
