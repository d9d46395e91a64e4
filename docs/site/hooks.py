"""What mkdocs does besides: pages from outside of `docs`, pages of notebooks, links, and GitHub's anchors."""

import json
from pathlib import Path

from links import FROM_ROOT, ROOT, indent_lists, rewrite, slug
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from notebooks import to_markdown


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Before the navigation is made."""
    if index := files.get_file_from_path("README.md"):
        files.remove(index)
    for path, page in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text("utf-8")))
    for file in [one for one in files if one.src_uri.endswith(".ipynb")]:
        text = to_markdown(json.loads(file.content_string), Path(file.src_uri).name)
        files.append(File.generated(config, f"{file.src_uri.removesuffix('.ipynb')}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return indent_lists(rewrite(markdown, page.file.src_uri, config.repo_url))
