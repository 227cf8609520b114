"""MkDocs hooks: write the reference pages at build time and check that every public name is documented.

`reference/cli.md` is the help of every verb; `reference/api/PACKAGE.md` lists what the package exports and then every
public module by mkdocstrings. A public name without a docstring, or that is missing on the built pages, is a warning,
which `mkdocs build --strict` makes an error.
"""

import ast
import importlib
import inspect
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "stillmotion"
# Options that every verb has; those of objectives, solvers and heads depend on the recipe.
GLOBAL_OPTIONS = {"--encoder", "--help", "--help-all", "--dry-run", "--debug", "--traceback", "--recipe", "--config"}
RECIPE_OPTIONS = ("--method.objective.", "--solver.", "--head.")
HELP_TEXTS: dict[str, str] = {}
logger = logging.getLogger("mkdocs.hooks.reference")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, modules in sorted(api_modules().items()):
        page = "search-index" if name == "index" else name  # index.md would be the page of the section
        files.append(File.generated(config, f"reference/api/{page}.md", content=api_page(name, modules)))
    files.append(File.generated(config, "reference/cli.md", content=cli_page()))
    for name in ("README.md", "CONTRIBUTING.md"):
        check_commands((ROOT / name).read_text(), name)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Warn about commands on a page that have a verb or an option that does not exist."""
    if not page.file.src_uri.startswith("reference/api"):
        check_commands(markdown, page.file.src_uri)
    return markdown


def check_commands(text: str, page: str) -> None:
    """Warn about each command in a text that the command line would refuse.

    Args:
        text: Markdown.
        page: Name of the page, for the warning.
    """
    text = re.sub(r"```python\n.*?```", "", text, flags=re.S)  # verbs that CONTRIBUTING.md adds
    for command in re.findall(r"(?:^ {4,}|`|-m )stillmotion ([a-z][^`\n]*)", text.replace("\\\n", " "), re.M):
        words = command.split("#")[0].split()
        verb = next((name for name in (" ".join(words[:2]), words[0]) if name in HELP_TEXTS), None)
        if verb is None:
            if words[0] not in ("help", "VERB", "frames", "static-dynamic", "study", "data"):
                logger.warning("%s: there is no verb %r", page, words[0])
            continue
        for option in re.findall(r"(?<!\S)--[\w.-]+", " ".join(words)):
            known = f"{option} " in f"{HELP_TEXTS[verb]} ".replace(",", " ").replace("\n", " ")
            if not known and option not in GLOBAL_OPTIONS and not option.startswith(RECIPE_OPTIONS):
                logger.warning("%s: stillmotion %s has no option %s", page, verb, option)


def on_post_build(config: MkDocsConfig) -> None:
    """Warn about public names that have no docstring or are not on the built pages."""
    pages = "".join(path.read_text() for path in Path(config.site_dir, "reference", "api").rglob("*.html"))
    anchors = set(re.findall(r'id="(stillmotion[\w.]*)"', pages))
    for name, docstring in public_names():
        if not docstring:
            logger.warning("%s has no docstring", name)
        elif name not in anchors:
            logger.warning("%s is not in the reference", name)


def api_modules() -> dict[str, list[str]]:
    """Public modules by the page that documents them: one page per package, `stillmotion` for single modules.

    Returns:
        Dotted module names by page.
    """
    pages: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        module = ".".join(part for part in parts if part != "__init__")
        pages.setdefault(parts[1] if len(parts) > 2 else "stillmotion", []).append(module)
    return pages


def api_page(name: str, modules: list[str]) -> str:
    """Markdown of a page: the package's docstring, its exports, then every module.

    Args:
        name: Package below stillmotion, or "stillmotion" for the modules beside the packages.
        modules: Dotted names of the public modules to document.

    Returns:
        The page.
    """
    package = "stillmotion" if name == "stillmotion" else f"stillmotion.{name}"
    docstring = inspect.cleandoc(ast.get_docstring(ast.parse(source_of(package))) or "").split("\n\n")[0]
    lines = [f"# {package}", "", docstring, ""]
    for module in [package, *(name for name in modules if name != package)]:
        if rows := exported(module):
            lines += [f"| `from {module} import …` | defined in |", "|---|---|", *rows, ""]
    for module in modules:
        if has_public_names(module) and module != package:
            lines += [f"## {module.removeprefix('stillmotion.')}", "", f"::: {module}", ""]
            lines += ["    options:", "      show_root_heading: false", "      show_root_toc_entry: false", ""]
    if has_public_names(package):
        lines += [f"::: {package}", "    options:", "      show_root_heading: false", ""]
    return "\n".join(lines)


def exported(module_name: str) -> list[str]:
    """Rows of a table of the names in a module's `__all__`; classes and functions link to their definitions."""
    if "__all__" not in source_of(module_name):
        return []
    module, rows = importlib.import_module(module_name), []
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            rows.append(f"| [`{name}`][{value.__module__}.{value.__qualname__}] | `{value.__module__}` |")
        else:
            rows.append(f"| `{name}` | a constant or type |")
    return rows


def source_of(module: str) -> str:
    """Source code of a module of the package."""
    path = ROOT.joinpath(*module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def definitions(module: str) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Public top-level classes and functions of a module."""
    for node in ast.parse(source_of(module)).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            yield node


def has_public_names(module: str) -> bool:
    """Whether a module defines public classes or functions."""
    return any(True for _ in definitions(module))


def public_names() -> Iterator[tuple[str, str | None]]:
    """Every public top-level class and function of the package, with its docstring."""
    for modules in api_modules().values():
        for module in modules:
            yield from ((f"{module}.{node.name}", ast.get_docstring(node)) for node in definitions(module))


def cli_page() -> str:
    """Markdown of the command line's reference: the overview, and the help of every verb."""
    from stillmotion.cli.verbs import VERBS

    verbs = list(VERBS.builtin)
    with ThreadPoolExecutor(2) as pool:
        overview, *texts = pool.map(help_text, ["", *verbs])
    HELP_TEXTS.update(zip(verbs, texts, strict=True))
    lines = ["# Command line", "", "```text", overview, "```", ""]
    for verb, text in zip(verbs, texts, strict=True):
        lines += [f"## {verb}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def help_text(verb: str) -> str:
    """What `stillmotion VERB` prints about all of its options."""
    environment = os.environ | {"COLUMNS": "110", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    for option in ("--help-all", "--help"):
        command = [sys.executable, "-m", "stillmotion", *verb.split(), option]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    raise PluginError(f"stillmotion {verb} --help: {done.stderr}")
