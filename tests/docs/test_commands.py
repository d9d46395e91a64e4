"""Every command and every Python example of README.md and docs/ runs, in its page's order, on small stand-ins.

A command is run with the options of SMALLER and OF_ITEMS in the place of its own. One that its page marks (see
`pages.py`) is parsed only. What is only named, in running text or as a synopsis, must name commands and options that
exist.
"""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import MARK, PAGES, ROOT, Block, Command, Page
from tilepress.cli.app import COMMANDS, load
from tilepress.paper import find

# Options in the place of those that a command has, so that it takes a second and not minutes.
SMALLER = {
    "compress": {"--sequences": "2", "--length": "32"},
    "allocate": {"--sequences": "2", "--length": "32"},
    "demo": {"--windows": "1"},
    "search": {"--sequences": "1", "--length": "32", "--windows": "1"},
    "generate": {"--tokens": "4"},
    "eval": {"--window": "64", "--windows": "1", "--items": "2"},
    "bench linear": {"--shape": "2048x1024", "--repeats": "1", "--seconds": "0"},
    "bench model": {"--prompt": "8", "--tokens": "2", "--repeats": "1", "--no-peers": ""},
    "bench attention": {"--depth": "64", "--repeats": "1"},
    "bench pack": {"--neurons": "64", "--inputs": "64", "--repeats": "1"},
    "bench planes": {"--megabytes": "1", "--repeats": "1"},
    "bench threads": {"--rounds": "1", "--prompt": "8", "--tokens": "2"},
    "bench serve": {"--requests": "3", "--prompt": "8-16", "--tokens": "2"},
    "simulate deca": {"--parameters": "10000000"},
    "simulate compare": {"--tokens": "2048"},
    "sweep": {"--workers": "1"},
}
SHORTER = {
    "bench model": {"--depth": "16"},
    "bench serve": {"--rate": "100", "--prefix": "4"},
}  # only where a command has them
OF_ITEMS = {
    "windows": "1",
    "tokens": "32",
    "sequences": "1",
    "length": "32",
    "weights": str(56 * 512 * 40),  # a number of them, where it is no format
}  # --set of `reproduce`, if items have them, and numbers in them
PAPERS = ("deca", "anda", "harmonia", "sparamx")  # each stood for by its first item; tests/paper runs them all

# Commands whose examples are only parsed, and why.
NOT_RUN = {
    **dict.fromkeys(("push", "pull"), "needs a hub"),  # tests/cli/test_hub.py has one
    "serve": "serves until it is stopped",  # tests/serve
}

# The one thing that a machine may refuse: kernels of a processor whose instructions nobody has counted.
REFUSED = "was not counted for"

ALL = [Page(path) for path in PAGES]
on_pages = pytest.mark.parametrize("page", ALL, ids=[page.name for page in ALL])


@on_pages
def test_a_page_runs_from_top_to_bottom(page, beside, call):
    for name, text in page.files.items():
        (beside / name).write_text(text)
    names = {"__name__": page.name}
    for step in page.steps:
        if isinstance(step, Block):
            exec(compile("\n" * (step.line - 1) + step.text, page.name, "exec"), names)
        else:
            CHECKS[check_of(step)](step, call)


def test_the_examples_of_help_run(beside, call):
    examples = {name: list(examples_of(command)) for name, command in leaves(subcommands())}
    assert all(examples.values()), [name for name in examples if not examples[name]]
    typed = {tuple(smaller(one.words)) for page in ALL for one in page.commands if check_of(one) == "tilepress"}
    for example in [*examples.pop("compress"), *(one for some in examples.values() for one in some)]:
        if example.words[1] == "compress" or tuple(smaller(example.words)) not in typed:
            CHECKS[check_of(example)](example, call)


@cache
def subcommands():
    """Name → what click has of it."""
    return {name: load(name) for name in COMMANDS}


def leaves(commands, *before):
    """(name, command) of all that is no group."""
    for name, command in commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command.commands, *before, name)
        else:
            yield " ".join([*before, name]), command


def examples_of(command):
    for text in re.findall(r"Example: (tilepress .*)", command.help):
        words = tuple(shlex.split(text))
        yield Command(f"help of {command.name}", 0, words, NOT_RUN.get(words[1]))


def check_of(command):
    """How a command is tested: the name of one of CHECKS. There is no other way out."""
    if command.is_synopsis:
        return "named"
    if command.reason is not None:
        return "marked"
    return command.words[0]


def run_tilepress(command, call):
    done = call(*smaller(command.words))
    assert done.returncode == 0 or REFUSED in done.stderr, f"{command}\n{done.stderr}"


def check_make(command, call):
    """Set up environments of their own, and run this."""
    for target in command.words[1:]:
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), f"{command}: no such target"


def check_python(command, call):
    """Tests and measurements: the files must be there. Those of add-a-format.md are run by test_walkthroughs.py."""
    paths = [word for word in command.words[1:] if "/" in word]
    assert paths and all((ROOT / path).exists() for path in paths), f"{command}: no such file"


def check_names(command, call):
    """The command and its options exist, and so do items to reproduce."""
    for name, parsed, rest in alternatives(command):
        assert name, f"{command}: no such command"
        unknown = {word.partition("=")[0] for word in rest if word.startswith("-")} - options_of(parsed)
        assert not unknown, f"{command}: there is no {unknown}"
        find([word for word in rest if is_item(word)] if name == "reproduce" else [])


def check_parse(command, call):
    """All that its options and arguments say of themselves holds; it is not run."""
    name, parsed, rest = subcommand(command.words[1:])
    parsed.make_context(name, list(rest)).close()


CHECKS = {
    "tilepress": run_tilepress,
    "make": check_make,
    "python": check_python,
    "named": check_names,
    "marked": check_parse,
}


def smaller(words):
    """What is run in the place of a command: the same, with fewer tokens, rows and runs."""
    name, _, rest = subcommand(words[1:])
    given = {option: value for option, value in SHORTER.get(name, {}).items() if option in rest}
    for option, value in (SMALLER.get(name, {}) | given).items():
        rest = [*without(rest, option), *filter(None, (option, value))]
    return [*name.split(), *(of_items(rest) if name == "reproduce" and "--list" not in rest else rest)]


def of_items(rest):
    rest = [find([word])[0].name if word in PAPERS else word for word in rest]
    chosen = find([word for word in rest if is_item(word)])
    options = {option for item in chosen for option, value in item.options.items() if isinstance(value, int)}
    rest = [word for word in rest if word.partition("=")[0] not in options & OF_ITEMS.keys()]
    rest = [word for word, after in zip(rest, [*rest[1:], ""], strict=True) if word != "--set" or "=" in after]
    return [*rest, *(word for one in OF_ITEMS if one in options for word in ("--set", f"{one}={OF_ITEMS[one]}"))]


def is_item(word):
    return word.partition("/")[0] in PAPERS


def without(words, option):
    """`words` less every `option` and its value."""
    rest = list(words)
    while option in rest:
        at = rest.index(option)
        del rest[at : at + 2]
    return rest


def subcommand(words):
    """(name of the subcommand, what click has of it, the words after its name)."""
    command, inner, name, rest = None, subcommands(), [], list(words)
    while rest and rest[0] in inner:
        name.append(rest.pop(0))
        command = inner[name[-1]]
        inner = getattr(command, "commands", {})
    return " ".join(name), command, rest


def alternatives(command):
    """`generate|eval --kv` is two commands; of a list with commas the first counts."""
    text = " ".join(command.words[1:]).partition(",")[0]
    heads, dashes, options = text.partition(" -")
    return [subcommand(f"{head}{dashes}{options}".split()) for head in heads.split("|")]


def options_of(command):
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


# What the pages may not have


@on_pages
def test_what_is_only_named_exists(page, call):
    for command in page.mentions:
        check_names(command, call)


@on_pages
def test_every_command_has_a_check(page):
    for command in page.commands:
        assert check_of(command) in CHECKS, f"{command}: run it, or say why not ({MARK} …)"
        assert not command.is_synopsis or page.name == "docs/command-line.md", (
            f"{command}: give a command that can be typed"
        )


def test_marks_are_few_and_say_why():
    marked = [command for page in ALL for command in page.commands if command.reason is not None]
    assert all(command.reason and command.words[0] == "tilepress" for command in marked)
    assert len(marked) < 0.1 * sum(len(page.commands) for page in ALL)


@pytest.mark.parametrize(
    "line, check",
    [
        ("tilepress compres smollm2-135m -o small", "named"),
        ("tilepress eval smollm2-135m --window-size 4", "named"),
        ("tilepress reproduce deca/table99", "named"),
        ("make dem", "make"),
        ("python -m pytest tests/none", "python"),
    ],
)
def test_what_is_wrong_is_seen(line, check, call):
    with pytest.raises((AssertionError, ValueError)):
        CHECKS[check](Command("page", 1, tuple(line.split())), call)


def test_a_command_that_fails_is_seen(beside, call):
    with pytest.raises(AssertionError, match="page:1: tilepress generate nowhere"):
        run_tilepress(Command("page", 1, ("tilepress", "generate", "nowhere", "Once")), call)


def test_sizes_are_replaced():
    words = ["tilepress", "bench", "model", "a", "--depth", "1024,4096", "--prompt", "99", "--kv", "bfp4"]
    assert smaller(words)[:5] == ["bench", "model", "a", "--kv", "bfp4"] and "99" not in smaller(words)
    words = smaller(["tilepress", "reproduce", "anda/fig6", "--set", "windows=9", "--set", "model=small"])
    assert words == ["reproduce", "anda/fig6", "--set", "model=small", "--set", "windows=1", "--set", "tokens=32"]
    words = smaller(["tilepress", "reproduce", "deca/table2", "--set", "weights=9"])
    assert words == ["reproduce", "deca/table2", "--set", f"weights={56 * 512 * 40}"]
    words = smaller(["tilepress", "reproduce", "anda/fig6", "--set", "weights=int4:g128"])
    assert words[:4] == ["reproduce", "anda/fig6", "--set", "weights=int4:g128"]


# Paths, links and excerpts


@on_pages
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.text):
        if not target.startswith("https://"):
            path = page.path.parent / target if target else page.path
            assert path.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(path), f"{page.name}: {target}#{anchor}"


def anchors(path: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@on_pages
def test_paths_exist(page):
    """What looks like a file of ours, `kernels/linear.py` say: from the root, the package or the sources."""
    for path in re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|pyi|cc|h|yaml|md))`", page.text):
        assert any((root / path).exists() for root in (ROOT, ROOT / "src/tilepress", ROOT / "native")), path


@on_pages
def test_excerpts_are_as_in_the_source(page):
    for block in page.blocks:
        if block.language == "cpp" and block.file:
            source = (ROOT / block.file).read_text()
            assert "".join(f"{line}\n" for line in block.lines[1:]) in source, f"{page.name}: {block.file}"


@pytest.mark.parametrize("folder", sorted({path.parent for path in PAGES} - {ROOT}), ids=lambda path: path.name)
def test_the_index_has_every_page(folder):
    index = (folder / "README.md").read_text()
    missing = [path.name for path in folder.glob("*.md") if f"({path.name})" not in index]
    assert missing == ["README.md"]
