"""What mkdocs does besides: pages from outside of `docs`, links, and GitHub's anchors."""

from links import FROM_ROOT, ROOT, indent_lists, rewrite, slug
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Before the navigation is made."""
    if index := files.get_file_from_path("README.md"):
        files.remove(index)
    for path, page in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return indent_lists(rewrite(markdown, page.file.src_uri, config.repo_url))
